//! How planning grows: synthetic problems of up to 20 000 groups on 64 devices, and resnet152 on eight.
//!
//! Prints one line a problem: seconds, evaluations, the value against the bound, and the most memory allocated; then
//! the exponent of the growth, fitted to seconds over groups · devices. `cargo bench --bench plan_scale`.

use std::{path::Path, time::Instant};

use edgecut::{
    engine::CountingAllocator,
    graph::{Granularity, OperatorId, TensorId},
    plan::{
        DeviceId, GroupId, Problem, TensorIndex,
        assemble::Network,
        problem::{Cost, Device, Group, Link, LinkId, Objective, Targets, Tensor},
        search::Options,
        solve::solve,
        split::{Proportional, Task, Ways, plan},
    },
    profile::items,
    relay::{ImportOptions, import},
    units::{Bytes, Micros},
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const SIZES: [(usize, usize); 6] = [(250, 4), (500, 8), (1_000, 8), (2_000, 16), (5_000, 32), (20_000, 64)];

fn main() {
    println!("{:<22} {:>8} {:>12} {:>12} {:>7} {:>10}", "problem", "seconds", "value us", "bound us", "gap %", "peak");
    let mut points = Vec::new();
    // `cargo bench --bench plan_scale -- resnet` leaves the synthetic problems out.
    let only_resnet = std::env::args().any(|argument| argument == "resnet");
    for (groups, devices) in SIZES.into_iter().filter(|_| !only_resnet) {
        let problem = synthetic(groups, devices);
        let name = format!("{groups} x {devices}");
        let seconds = measured(&name, || {
            let solution = solve(&problem, &Options::default()).unwrap_or_else(|why| panic!("{name}: {why}"));
            (solution.value(), solution.bound.value)
        });
        points.push((((groups * devices) as f64).ln(), seconds.ln()));
    }
    if points.len() > 1 {
        println!("seconds grow as (groups x devices)^{:.2}", slope(&points));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/relay/models/resnet152.relay");
    match std::fs::read(&path) {
        Ok(text) => resnet(&text),
        Err(error) => eprintln!("skipped {}: {error}", path.display()),
    }
}

/// Prints a line of what `solve` finds and takes, and returns the seconds.
fn measured(name: &str, solve: impl FnOnce() -> (f64, f64)) -> f64 {
    let before = CountingAllocator::live();
    CountingAllocator::reset_peak();
    let start = Instant::now();
    let (value, bound) = solve();
    let seconds = start.elapsed().as_secs_f64();
    let peak = CountingAllocator::peak() - before;
    let gap = 100.0 * (value - bound) / value;
    println!("{name:<22} {seconds:>8.2} {value:>12.0} {bound:>12.0} {gap:>7.2} {peak:>10}");
    seconds
}

/// The slope of the line through points, by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (sx, sy) = points.iter().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x, sy + y));
    let (mx, my) = (sx / n, sy / n);
    let (xy, xx) =
        points.iter().fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + (x - mx) * (y - my), xx + (x - mx) * (x - mx)));
    xy / xx
}

fn cluster(devices: usize) -> Network {
    let device = |d: usize| Device { server: format!("s{d}"), name: "cpu".into(), address: None, memory: None };
    let link = |i: usize| Link {
        name: format!("{} to {}", i / devices, i % devices),
        latency: Micros(200.0),
        per_byte: 1.0 / 125.0,
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
            |speed: &f64| Some(Cost { time: Micros(work / speed), workspace: Bytes(1 << 16), held: Bytes::ZERO });
        rows.push(Group {
            name: format!("g{index}"),
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
    Tensor { name: String::new(), graph: TensorId(0), bytes: Bytes(100_000), producer, view_of: None, is_output: false }
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
        Some(Cost { time: Micros(5.0 + flops as f64 / speed), workspace: Bytes(1 << 20), held: Bytes::ZERO })
    };
    let costs: Vec<Vec<Option<Cost>>> =
        items.iter().map(|item| speeds.iter().map(|speed| cost(item.flops, speed)).collect()).collect();
    for objective in [Objective::Latency, Objective::Throughput] {
        let task = Task {
            ways: Ways::of(&graph, &groups),
            names: items.iter().map(|item| item.name.clone()).collect(),
            costs: costs.clone(),
            network: cluster(8),
            objective,
            targets: Targets::default(),
            shards: &Proportional::default(),
        };
        match task.expand(&Default::default()) {
            Ok(whole) => {
                measured(&format!("resnet152 {objective}"), || match solve(&whole.problem, &Options::default()) {
                    Ok(solution) => (solution.value(), solution.bound.value),
                    Err(_) => (f64::NAN, f64::NAN),
                });
            }
            Err(error) => eprintln!("{error}"),
        }
        measured(&format!("  split {objective}"), || match plan(&task, &Options::default()) {
            Ok(answer) => (answer.solution.value(), answer.solution.bound.value),
            Err(_) => (f64::NAN, f64::NAN),
        });
    }
}
