//! Problems for unit tests: hand-made ones with round numbers, and random ones.

mod power;

use self::power::add_power;
use crate::problem::{
    Cost, Device, DeviceId, Group, GroupId, Handling, HandlingCost, Link, LinkId, Objective, ParameterId, Problem,
    Targets, Tensor, TensorIndex, placement::Placement, transfer_format::Coding,
};
use edgecut_graph::{
    LinkCost, OperatorId, TensorId,
    units::{Bytes, Micros, Watts},
};
use fastrand::Rng;

/// Size of every tensor of [`hand_made`], whose links take 10 + 0.1 · bytes microseconds.
pub(crate) const TENSOR_BYTES: u64 = 100;

/// A problem on two devices of the same speed. Group `i` takes `groups[i].1` microseconds, reads the tensors `groups[i].0`
/// and produces tensor `i + 1`; tensor 0 is the input, and what no group reads is a result. Source and sink are device 0.
pub(crate) fn hand_made(groups: &[(&[u32], f64)]) -> Problem {
    let is_read = |tensor: u32| groups.iter().any(|(reads, _)| reads.contains(&tensor));
    let tensor = |index: u32| Tensor {
        name: format!("t{index}"),
        graph: TensorId(index),
        bytes: Bytes(TENSOR_BYTES),
        producer: index.checked_sub(1).map(GroupId),
        activation: None,
        view_of: None,
        is_output: !is_read(index),
    };
    let group = |(index, (reads, time)): (u32, &(&[u32], f64))| Group {
        name: format!("g{index}"),
        label: format!("g{index}"),
        operators: vec![OperatorId(index)],
        inputs: reads.iter().copied().map(TensorIndex).collect(),
        outputs: vec![TensorIndex(index + 1)],
        parameters: Vec::new(),
        costs: vec![Some(Cost { time: Micros(*time), ..Cost::default() }); 2],
    };
    Problem {
        groups: (0u32..).zip(groups).map(group).collect(),
        tensors: (0..=groups.len() as u32).map(tensor).collect(),
        parameters: Vec::new(),
        states: Vec::new(),
        devices: (0..2).map(device).collect(),
        links: vec![link("0->1", 10.0, 0.1), link("1->0", 10.0, 0.1)],
        routes: vec![None, Some(LinkId(0)), Some(LinkId(1)), None],
        source: DeviceId(0),
        sink: DeviceId(0),
        objective: Objective::Latency,
        targets: Targets::default(),
    }
}

/// A random problem with shared parameters, workspaces, views and unequal devices.
pub(crate) fn random(seed: u64, groups: u32, devices: u32) -> Problem {
    let mut rng = Rng::with_seed(seed);
    let reads: Vec<Vec<u32>> = (0..groups)
        .map(|group| {
            let mut reads: Vec<u32> = (0..rng.u32(1..=3)).map(|_| rng.u32(0..=group)).collect();
            reads.sort_unstable();
            reads.dedup();
            reads
        })
        .collect();
    let table: Vec<(&[u32], f64)> = reads.iter().map(|reads| (reads.as_slice(), 1.0)).collect();
    let mut problem = hand_made(&table);
    problem.parameters = (0..groups).map(|_| Bytes(rng.u64(0..2000))).collect();
    for group in &mut problem.groups {
        group.parameters = vec![ParameterId(rng.u32(0..groups))];
        let mut cost = || Cost {
            time: Micros(f64::from(rng.u32(1..100))),
            workspace: Bytes(rng.u64(0..300)),
            held: Bytes(rng.u64(0..50)),
            power: Watts::ZERO,
        };
        group.costs = (0..devices).map(|_| Some(cost())).collect();
    }
    for index in 1..problem.tensors.len() {
        problem.tensors[index].bytes = Bytes(rng.u64(1..1000));
        let operand = problem.groups[index - 1].inputs[0];
        if rng.u8(0..6) == 0 {
            problem.tensors[index].view_of = Some(operand);
            problem.tensors[index].bytes = problem.tensor(operand).bytes;
        }
    }
    // Of some problems two devices are of one server.
    let server = |index: u32| if seed.is_multiple_of(2) { index / 2 } else { index };
    problem.devices =
        (0..devices).map(|index| Device { server: format!("s{}", server(index)), ..device(index) }).collect();
    if seed % 3 == 2 {
        problem.devices.iter_mut().for_each(|device| device.handling = handling(2.0, 0.01));
    }
    problem.links = (0..devices * devices).map(|n| link(&n.to_string(), f64::from(n % 7), 0.02)).collect();
    let route = |n: u32| (n / devices != n % devices).then_some(LinkId(n));
    problem.routes = (0..devices * devices).map(route).collect();
    problem.sink = DeviceId(rng.u32(0..devices));
    problem.objective = [Objective::Latency, Objective::Throughput, Objective::Memory][rng.usize(0..3)];
    add_power(&mut problem, seed);
    problem
}

/// A random placement in program order.
pub(crate) fn random_placement(problem: &Problem, seed: u64) -> Placement {
    let mut rng = Rng::with_seed(seed);
    let devices = problem.groups.iter().map(|_| DeviceId(rng.u32(0..problem.devices.len() as u32))).collect();
    Placement { devices, order: problem.group_ids().collect() }
}

/// The placement of groups on `devices` in program order.
pub(crate) fn placement(devices: &[u32]) -> Placement {
    let order = (0..devices.len() as u32).map(GroupId).collect();
    Placement { devices: devices.iter().copied().map(DeviceId).collect(), order }
}

/// What transfers take of a device: sending so much each and by byte, receiving half of it.
pub(crate) fn handling(each: f64, per_byte: f64) -> Handling {
    let cost = |part: f64| HandlingCost { each: Micros(part * each), per_byte: part * per_byte };
    Handling { sending: cost(1.0), receiving: cost(0.5) }
}

fn device(index: u32) -> Device {
    Device { server: format!("s{index}"), name: "cpu".into(), address: None, memory: None, ..Device::default() }
}

fn link(name: &str, latency: f64, per_byte: f64) -> Link {
    Link {
        name: name.into(),
        cost: LinkCost::per_byte(Micros(latency), per_byte),
        overhead: Micros::ZERO,
        coding: Coding::default(),
    }
}
