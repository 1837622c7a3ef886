//! How planning grows: synthetic problems of up to 20 000 groups on 64 devices, and resnet152 on eight.
//!
//! Prints one line a problem: seconds, evaluations, the value against the bound, and the most memory of the process
//! (VmHWM, which is reset before every line); then the growth as groups^a · devices^b: of the seconds, fitted to the
//! problems that took less than the cut-off, and of the seconds that an evaluation takes, fitted to all.
//! `cargo bench --bench plan_scale`, with `-- resnet` for resnet152 alone.

use std::{path::Path, time::Instant};

use edgecut::{
    graph::{Granularity, LinkCost, OperatorId, TensorId},
    plan::{
        DeviceId, Goal, GroupId, Instance, NoPlan, PlanRequest, Problem, TensorIndex,
        assemble::Network,
        problem::{Cost, Device, Group, Link, LinkId, Objective, Targets, Tensor},
        search::{Options, solve::solve},
        solution::Solution,
        split::{self, SplitOptions},
        transfer_format::Coding,
    },
    profile::items,
    relay::{ImportOptions, import},
    units::{Bytes, Micros, Rate},
};

const SIZES: [(usize, usize); 9] =
    [(250, 4), (500, 8), (1_000, 8), (1_000, 32), (2_000, 16), (5_000, 8), (5_000, 32), (10_000, 64), (20_000, 64)];
/// A search that takes so many times the usual evaluations shows what the usual ones leave.
const LONGER: u64 = 20;

fn main() {
    println!(
        "{:<26} {:>8} {:>12} {:>12} {:>12} {:>7} {:>9}",
        "problem", "seconds", "evaluations", "value us", "bound us", "gap %", "MiB"
    );
    let (mut whole, mut each) = (Vec::new(), Vec::new());
    let cut_off = Options::default().cut_off.map_or(f64::INFINITY, |limit| limit.as_secs_f64());
    let only_resnet = std::env::args().any(|argument| argument == "resnet");
    for (groups, devices) in SIZES.into_iter().filter(|_| !only_resnet) {
        let problem = synthetic(groups, devices);
        let name = format!("{groups} x {devices}");
        let (seconds, evaluations) = measured(&name, || solve(&problem, &Options::default()));
        let point = |value: f64| [(groups as f64).ln(), (devices as f64).ln(), value.ln()];
        if evaluations == 0 {
            continue;
        }
        each.push(point(seconds / evaluations as f64));
        if seconds < cut_off {
            whole.push(point(seconds));
        }
    }
    for (what, points) in [("seconds", whole), ("seconds an evaluation", each)] {
        if let Some([a, b]) = growth(&points) {
            println!("{what} grow as groups^{a:.2} x devices^{b:.2} ({} problems)", points.len());
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/relay/models/resnet152.relay");
    match std::fs::read(&path) {
        Ok(text) => resnet(&text),
        Err(error) => eprintln!("skipped {}: {error}", path.display()),
    }
}

/// Prints a line of what `solve` finds and takes, and returns the seconds and the evaluations.
fn measured(name: &str, solve: impl FnOnce() -> Result<Solution, NoPlan>) -> (f64, u64) {
    // Resets VmHWM, where the system allows it.
    let _only_then = std::fs::write("/proc/self/clear_refs", "5");
    let start = Instant::now();
    let solution = solve();
    let seconds = start.elapsed().as_secs_f64();
    let peak = most_memory().map_or("unknown".to_string(), |kib| (kib / 1024).to_string());
    match solution {
        Ok(solution) => {
            println!(
                "{name:<26} {seconds:>8.2} {:>12} {:>12.0} {:>12.0} {:>7.2} {peak:>9}",
                solution.evaluations,
                solution.value(),
                solution.bound.value,
                100.0 * solution.gap()
            );
            (seconds, solution.evaluations)
        }
        Err(reason) => {
            println!("{name:<26} {seconds:>8.2} {reason}");
            (seconds, 0)
        }
    }
}

/// The most memory that the process had, in KiB.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The exponents of the plane through points (two coordinates and a value) by least squares.
fn growth(points: &[[f64; 3]]) -> Option<[f64; 2]> {
    let n = points.len() as f64;
    let mean: Vec<f64> = (0..3).map(|axis| points.iter().map(|p| p[axis]).sum::<f64>() / n).collect();
    let product = |i: usize, j: usize| points.iter().map(|p| (p[i] - mean[i]) * (p[j] - mean[j])).sum::<f64>();
    let determinant = product(0, 0) * product(1, 1) - product(0, 1).powi(2);
    (points.len() > 2 && determinant > 0.0).then(|| {
        let a = product(0, 2) * product(1, 1) - product(1, 2) * product(0, 1);
        let b = product(1, 2) * product(0, 0) - product(0, 2) * product(0, 1);
        [a / determinant, b / determinant]
    })
}

fn cluster(devices: usize) -> Network {
    let device = |d: usize| Device {
        server: format!("s{d}"),
        name: "cpu".into(),
        address: None,
        memory: None,
        ..Device::default()
    };
    let link = |i: usize| Link {
        name: format!("{} to {}", i / devices, i % devices),
        cost: LinkCost { latency: Micros(200.0), rate: Rate(125.0) },
        overhead: Micros::ZERO,
        coding: Coding::default(),
    };
    let route = |i: usize| (i / devices != i % devices).then_some(LinkId(i as u32));
    Network {
        devices: (0..devices).map(device).collect(),
        links: (0..devices * devices).map(link).collect(),
        routes: (0..devices * devices).map(route).collect(),
        source: DeviceId(0),
        sink: DeviceId(0),
    }
}

/// A graph of groups that each read one or two of the sixteen before them, on devices of different speeds.
fn synthetic(groups: usize, devices: usize) -> Problem {
    let mut rng = fastrand::Rng::with_seed(groups as u64);
    let speeds: Vec<f64> = (0..devices).map(|_| 0.5 + 1.5 * rng.f64()).collect();
    let network = cluster(devices);
    let mut tensors = vec![tensor(None)];
    let mut rows = Vec::with_capacity(groups);
    for index in 0..groups {
        let work = 200.0 + 5_000.0 * rng.f64().powi(3);
        let mut inputs: Vec<TensorIndex> =
            (0..rng.usize(1..=2)).map(|_| TensorIndex(index.saturating_sub(rng.usize(0..16)) as u32)).collect();
        inputs.sort();
        inputs.dedup();
        tensors.push(Tensor { bytes: Bytes(rng.u64(1_000..200_000)), ..tensor(Some(GroupId(index as u32))) });
        let cost =
            |speed: &f64| Some(Cost { time: Micros(work / speed), workspace: Bytes(1 << 16), ..Cost::default() });
        rows.push(Group {
            name: format!("g{index}"),
            label: format!("g{index}"),
            operators: vec![OperatorId(index as u32)],
            inputs,
            outputs: vec![TensorIndex(index as u32 + 1)],
            parameters: Vec::new(),
            costs: speeds.iter().map(cost).collect(),
        });
    }
    if let Some(last) = tensors.last_mut() {
        last.is_output = true;
    }
    Problem {
        states: vec![],
        groups: rows,
        tensors,
        parameters: Vec::new(),
        devices: network.devices,
        links: network.links,
        routes: network.routes,
        source: network.source,
        sink: network.sink,
        objective: Objective::Latency,
        targets: Targets::default(),
    }
}

fn tensor(producer: Option<GroupId>) -> Tensor {
    Tensor {
        name: String::new(),
        graph: TensorId(0),
        bytes: Bytes(100_000),
        producer,
        activation: None,
        view_of: None,
        is_output: false,
    }
}

/// resnet152 on eight devices of 40 GFLOP/s and less, whole groups and split ones.
fn resnet(text: &[u8]) {
    let graph = match import("resnet152", text, &ImportOptions::default()) {
        Ok(import) => import.graph,
        Err(error) => return eprintln!("{error}"),
    };
    let items = items(&graph, Granularity::Fused);
    let groups: Vec<Vec<OperatorId>> = items.iter().map(|item| item.operators.clone()).collect();
    let speeds: Vec<f64> = (0..8).map(|d| 40_000.0 / (1.0 + 0.25 * f64::from(d))).collect();
    let cost = |flops: u64, speed: &f64| {
        Some(Cost { time: Micros(5.0 + flops as f64 / speed), workspace: Bytes(1 << 20), ..Cost::default() })
    };
    let costs: Vec<Vec<Option<Cost>>> =
        items.iter().map(|item| speeds.iter().map(|speed| cost(item.flops, speed)).collect()).collect();
    for objective in [Objective::Latency, Objective::Throughput] {
        let names = items.iter().map(|item| item.name.clone()).collect();
        let instance = Instance::new(SplitOptions::of(&graph, &groups), names, costs.clone(), cluster(8));
        let request = PlanRequest::new(instance, Goal { objective, ..Goal::default() });
        match request.expand(&Default::default()) {
            Ok(whole) => {
                measured(&format!("resnet152 x 8 {objective}"), || solve(&whole.problem, &Options::default()));
                let usual = Options::default().evaluations(whole.problem.groups.len());
                let longer = Options { budget: Some(LONGER * usual), cut_off: None, ..Options::default() };
                measured("  with 20 x the evaluations", || solve(&whole.problem, &longer));
            }
            Err(error) => eprintln!("{error}"),
        }
        measured("  with splits", || split::solve(&request, None).map(|answer| answer.solution));
    }
}
