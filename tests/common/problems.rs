//! Random problems for tests of planning, and their best plans by trying everything. Shared with the tests of the crate `plan`.

#[path = "../../crates/plan/src/test_problems/power.rs"]
mod power;

use edgecut_graph::{
    self as graph, LinkCost,
    units::{Bytes, Micros, Watts},
};
use edgecut_plan::{
    DeviceId, GroupId, Problem, TensorIndex,
    activation::Activation,
    evaluation::Evaluation,
    placement::Placement,
    problem::{Cost, Device, Group, Handling, HandlingCost, Link, LinkId, Objective, ParameterId, Targets, Tensor},
    transfer_format::{Coding, TransferFormat},
};
use fastrand::Rng;
use power::add_power;

/// A random problem of [`exact_problem`]; in two of three, links carry some tensors in another format.
pub fn problem(seed: u64, groups: usize, devices: usize) -> Problem {
    let mut problem = exact_problem(seed, groups, devices);
    let mut rng = Rng::with_seed(seed);
    let format = [TransferFormat::Exact, TransferFormat::F16, TransferFormat::Int8][rng.usize(0..3)];
    if !format.is_exact() {
        // Links of one server carry tensors as they are.
        (0..devices).for_each(|at| problem.devices[at].server = format!("s{at}"));
        problem.links.iter_mut().for_each(|link| link.coding = Coding { format, per_element: 0.01 });
        for tensor in problem.tensors.iter_mut().filter(|tensor| tensor.producer.is_some() && !tensor.is_output) {
            let elements = tensor.bytes.0 / 4;
            tensor.activation = (rng.u8(0..4) > 0).then_some(Activation { elements, blocks: elements / 32 });
        }
    }
    problem
}

/// A random problem: a DAG with views, shared parameters, unequal devices, slow and fast links.
pub fn exact_problem(seed: u64, groups: usize, devices: usize) -> Problem {
    let mut rng = Rng::with_seed(seed);
    let mut tensors = vec![tensor(0, rng.u64(1..1000), None)];
    let parameters: Vec<Bytes> = (0..groups).map(|_| Bytes(rng.u64(0..5000))).collect();
    let mut list: Vec<Group> = Vec::new();
    for at in 0..groups {
        let mut inputs: Vec<TensorIndex> =
            (0..rng.usize(1..=3)).map(|_| TensorIndex(rng.u32(0..tensors.len() as u32))).collect();
        if rng.u8(0..3) > 0 {
            inputs.push(TensorIndex(tensors.len() as u32 - 1));
        }
        inputs.sort();
        inputs.dedup();
        let outputs: Vec<TensorIndex> = (0..rng.u32(1..=2)).map(|i| TensorIndex(tensors.len() as u32 + i)).collect();
        for output in &outputs {
            let mut made = tensor(output.0, rng.u64(1..1000), Some(GroupId(at as u32)));
            if rng.u8(0..6) == 0 {
                made.view_of = Some(inputs[0]);
                made.bytes = tensors[inputs[0].0 as usize].bytes;
            }
            tensors.push(made);
        }
        let mut costs: Vec<Option<Cost>> = (0..devices)
            .map(|_| {
                let time = Micros(if rng.u8(0..8) == 0 { 0.0 } else { f64::from(rng.u32(1..100)) });
                let (workspace, held) = (Bytes(rng.u64(0..500)), Bytes(rng.u64(0..100)));
                let cost = Cost { time, workspace, held, ..Cost::default() };
                (rng.u8(0..10) > 0).then_some(cost)
            })
            .collect();
        if costs.iter().all(Option::is_none) {
            costs[0] = Some(Cost { time: Micros(5.0), ..Cost::default() });
        }
        let used = (0..rng.usize(0..=2)).map(|_| ParameterId(rng.u32(0..groups as u32)));
        let mut used: Vec<ParameterId> = used.collect();
        used.sort();
        used.dedup();
        list.push(Group {
            name: format!("g{at}"),
            label: format!("g{at}"),
            operators: vec![graph::OperatorId(at as u32)],
            inputs,
            outputs,
            parameters: used,
            costs,
        });
    }
    let mut read = vec![false; tensors.len()];
    list.iter().flat_map(|g| &g.inputs).for_each(|t| read[t.0 as usize] = true);
    for (tensor, read) in tensors.iter_mut().zip(read) {
        tensor.is_output = !read || rng.u8(0..20) == 0;
    }
    let (mut links, mut routes) = (Vec::new(), Vec::new());
    for from in 0..devices {
        for to in 0..devices {
            // Some pairs share a link, some move for free.
            let choice = rng.u8(0..10);
            routes.push(match choice {
                _ if from == to => None,
                0 => None,
                1 if !links.is_empty() => Some(LinkId(rng.u32(0..links.len() as u32))),
                _ => {
                    let (latency, per_byte) = (Micros(f64::from(rng.u32(0..20))), rng.f64() * 0.05);
                    links.push(Link {
                        name: format!("{from}->{to}"),
                        cost: LinkCost::per_byte(latency, per_byte),
                        overhead: Micros::ZERO,
                        coding: Coding::default(),
                    });
                    Some(LinkId(links.len() as u32 - 1))
                }
            });
        }
    }
    let device = |at: usize| Device {
        // Of some problems two devices are of one server.
        server: format!("s{}", if seed.is_multiple_of(2) { at / 2 } else { at }),
        name: format!("cpu{at}"),
        address: None,
        memory: None,
        handling: if seed % 3 == 2 { handling(at) } else { Handling::default() },
        idle: None,
        ..Device::default()
    };
    let mut problem = Problem {
        states: vec![],
        groups: list,
        tensors,
        parameters,
        devices: (0..devices).map(device).collect(),
        links,
        routes,
        source: DeviceId(0),
        sink: DeviceId(rng.u32(0..devices as u32)),
        objective: [Objective::Latency, Objective::Throughput, Objective::Memory][rng.usize(0..3)],
        targets: Targets::default(),
    };
    add_power(&mut problem, seed);
    problem
}

/// What transfers take of a device.
fn handling(device: usize) -> Handling {
    let cost = |each: f64| HandlingCost { each: Micros(each), per_byte: 0.004 };
    Handling { sending: cost(1.0 + device as f64), receiving: cost(2.5) }
}

fn tensor(id: u32, bytes: u64, producer: Option<GroupId>) -> Tensor {
    let name = format!("t{id}");
    Tensor {
        name,
        graph: graph::TensorId(id),
        bytes: Bytes(bytes),
        producer,
        activation: None,
        view_of: None,
        is_output: false,
    }
}

/// Every placement and every order, without any cleverness.
pub fn brute_force(problem: &Problem) -> Option<f64> {
    fn orders(problem: &Problem, list: &mut Vec<GroupId>, found: &mut Vec<Vec<GroupId>>) {
        if list.len() == problem.groups.len() {
            found.push(list.clone());
        }
        for group in problem.group_ids().filter(|g| !list.contains(g)).collect::<Vec<_>>() {
            let mut reads = problem.group(group).inputs.iter().filter_map(|t| problem.tensor(*t).producer);
            if reads.all(|p| list.contains(&p)) {
                list.push(group);
                orders(problem, list, found);
                list.pop();
            }
        }
    }
    let mut found = Vec::new();
    orders(problem, &mut Vec::new(), &mut found);
    let choices = problem.devices.len().pow(problem.groups.len() as u32);
    let mut best: Option<f64> = None;
    for choice in 0..choices {
        let digit =
            |at: usize| DeviceId((choice / problem.devices.len().pow(at as u32) % problem.devices.len()) as u32);
        let devices: Vec<DeviceId> = (0..problem.groups.len()).map(digit).collect();
        for order in &found {
            let Ok(evaluation) = Evaluation::of(problem, Placement::new(&devices, order)) else { continue };
            if evaluation.score.feasible() && best.is_none_or(|best| evaluation.score.value < best) {
                best = Some(evaluation.score.value);
            }
        }
    }
    best
}
