//! Contiguous splits, exactly: dynamic programming over the ideals of the graph, the sets that have with every operator
//! all that it needs (Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020).
//!
//! A split is contiguous if devices can be put in an order in which each needs only what those before it have. Then
//! the first k devices together hold an ideal, and a device holds the difference of two. Networks are
//! narrow, so there are mostly few ideals; where there are too many, nothing is found. Operators of the backward pass
//! are taken in the opposite direction, so that they can be with those of the forward pass that they belong to. What
//! must share a device and would then wait for itself becomes one unit.

use std::collections::HashMap;

use fastrand::Rng;
use petgraph::{algo::kosaraju_scc, graph::DiGraph};

use super::candidate::ThroughputCandidate;
use crate::placement::{PlacementWorkload, bundles::Bundles};

/// Ideals that are looked at, and cells of the tables over them.
const MOST: usize = 60_000;
const CELLS: usize = 8_000_000;
/// Bytes that the ideals of one size may take.
const BYTES: usize = 1 << 28;

/// Differences of ideals between two looks at the clock.
const STRIDE: u64 = 1 << 16;

/// The best contiguous split that is better than a largest load of `upper`; `None` if there is none, or if that takes
/// more than `steps` differences of ideals.
pub fn search(
    workload: &PlacementWorkload,
    problem: &Bundles,
    upper: f64,
    steps: u64,
    late: &dyn Fn() -> bool,
) -> Option<ThroughputCandidate> {
    let units = Units::new(workload, problem);
    // More CPUs than two gain little in a split, and cost tables.
    let (accelerators, cpus) = (problem.accelerators, problem.cpus.min(2));
    let columns = (accelerators + 1) * (cpus + 1);
    let lattice = units.lattice(MOST.min(CELLS / columns))?;
    let mut table = IdealTable { cpus, columns, best: vec![f64::INFINITY; lattice.len() * columns], from: Vec::new() };
    table.from = vec![(0, Device::Cpu); table.best.len()];
    table.best[..columns].fill(0.0);
    let mut seen = vec![0u32; lattice.len()];
    let mut segment = Segment::new(problem);
    let mut left = steps;
    for (number, ideal) in (1u32..).zip(1..lattice.len()) {
        // A walk down from the ideal: what it has left behind is the segment.
        let mut walk: Vec<(usize, usize, Option<usize>)> = vec![(ideal, 0, None)];
        while let Some((at, next, unit)) = walk.last_mut() {
            let Some(&(removed, smaller)) = lattice[*at].get(*next) else {
                if let Some(unit) = *unit {
                    units.members[unit].iter().for_each(|bundle| segment.turn(*bundle, false));
                }
                walk.pop();
                continue;
            };
            *next += 1;
            if std::mem::replace(&mut seen[smaller as usize], number) == number {
                continue;
            }
            left = left.checked_sub(1)?;
            if left.is_multiple_of(STRIDE) && late() {
                return None;
            }
            units.members[removed].iter().for_each(|bundle| segment.turn(*bundle, true));
            // Times only grow on the way down, transfers do not.
            let on_accelerator = segment.foreign == 0 && segment.size <= problem.memory && segment.time < upper;
            let on_cpu = cpus > 0 && segment.cpu_time < upper;
            if on_accelerator && segment.time + segment.transfers < upper {
                table.take(ideal, smaller, Device::Accelerator, segment.time + segment.transfers);
            }
            if on_cpu {
                table.take(ideal, smaller, Device::Cpu, segment.cpu_time);
            }
            match on_accelerator || on_cpu {
                true => walk.push((smaller as usize, 0, Some(removed))),
                false => units.members[removed].iter().for_each(|bundle| segment.turn(*bundle, false)),
            }
        }
    }
    let mut column = columns - 1;
    let mut at = lattice.len() - 1;
    if table.best[at * columns + column] >= upper {
        return None;
    }
    let mut device = vec![0; problem.bundles.len()];
    while at > 0 {
        let (smaller, kind) = table.from[at * columns + column];
        column -= table.step(kind);
        let here = match kind {
            Device::Accelerator => column / (cpus + 1),
            Device::Cpu => accelerators + column % (cpus + 1),
        };
        for unit in units.between(&lattice, at, smaller as usize) {
            units.members[unit].iter().for_each(|bundle| device[*bundle] = here);
        }
        at = smaller as usize;
    }
    Some(ThroughputCandidate::of(problem, device))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Device {
    Accelerator,
    Cpu,
}

/// By ideal, and by how many accelerators and CPUs may have it: the least largest load, and what the last of them has.
struct IdealTable {
    cpus: usize,
    columns: usize,
    best: Vec<f64>,
    from: Vec<(u32, Device)>,
}

impl IdealTable {
    /// How many columns further one more device is.
    fn step(&self, kind: Device) -> usize {
        if kind == Device::Accelerator { self.cpus + 1 } else { 1 }
    }

    /// Considers that one more device has what lies between two ideals.
    fn take(&mut self, ideal: usize, smaller: u32, kind: Device, load: f64) {
        let step = self.step(kind);
        for column in step..self.columns {
            if kind == Device::Cpu && column % (self.cpus + 1) == 0 {
                continue;
            }
            let value = self.best[smaller as usize * self.columns + column - step].max(load);
            let cell = ideal * self.columns + column;
            if value < self.best[cell] {
                self.best[cell] = value;
                self.from[cell] = (smaller, kind);
            }
        }
    }
}

/// For each ideal, the ideals that lack one unit of it: which unit, and the number of the ideal. The empty one first,
/// the one that has everything last.
type Lattice = Vec<Vec<(usize, u32)>>;

/// Bundles that stand or fall together, and what comes before what.
struct Units {
    members: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
}

impl Units {
    fn new(workload: &PlacementWorkload, problem: &Bundles) -> Units {
        let mut graph: DiGraph<(), ()> = DiGraph::new();
        let vertices: Vec<_> = problem.bundles.iter().map(|_| graph.add_node(())).collect();
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (from, to) in &workload.edges {
            let (a, b) = (problem.of[*from], problem.of[*to]);
            match (workload.operators[*from].is_backward, workload.operators[*to].is_backward) {
                _ if a == b => {}
                (false, false) => order.push((a, b)),
                (true, true) => order.push((b, a)),
                _ => {}
            }
        }
        order.sort_unstable();
        order.dedup();
        graph.extend_with_edges(order.iter().map(|(a, b)| (vertices[*a], vertices[*b])));
        let members: Vec<Vec<usize>> =
            kosaraju_scc(&graph).into_iter().map(|unit| unit.into_iter().map(|v| v.index()).collect()).collect();
        let mut unit_of = vec![0; problem.bundles.len()];
        for (unit, bundles) in members.iter().enumerate() {
            bundles.iter().for_each(|bundle| unit_of[*bundle] = unit);
        }
        let mut units =
            Units { before: vec![Vec::new(); members.len()], after: vec![Vec::new(); members.len()], members };
        let mut order: Vec<(usize, usize)> = order.into_iter().map(|(a, b)| (unit_of[a], unit_of[b])).collect();
        order.sort_unstable();
        order.dedup();
        for (a, b) in order.into_iter().filter(|(a, b)| a != b) {
            units.before[b].push(a);
            units.after[a].push(b);
        }
        units
    }

    /// Every ideal; `None` if there are more than `most`, or too many of one size for memory.
    fn lattice(&self, most: usize) -> Option<Lattice> {
        let mut rng = Rng::with_seed(1);
        // A set is known by the exclusive or of its members' numbers.
        let keys: Vec<u128> = self.members.iter().map(|_| rng.u128(..)).collect();
        let mut lattice: Lattice = vec![Vec::new()];
        let first = (0..self.members.len()).filter(|unit| self.before[*unit].is_empty()).collect();
        let mut level: Vec<Ideal> =
            vec![Ideal { number: 0, key: 0, has: vec![false; self.members.len()], ready: first }];
        for _ in 0..self.members.len() {
            let mut numbers: HashMap<u128, u32> = HashMap::new();
            let mut next: Vec<Ideal> = Vec::new();
            let mut bytes = 0;
            for ideal in &level {
                for &unit in &ideal.ready {
                    let key = ideal.key ^ keys[unit];
                    let number = *numbers.entry(key).or_insert(lattice.len() as u32);
                    if number as usize == lattice.len() {
                        lattice.push(Vec::new());
                        let with = self.with(ideal, unit, number, key);
                        bytes += with.has.len() + with.ready.len() * size_of::<usize>();
                        next.push(with);
                    }
                    lattice[number as usize].push((unit, ideal.number));
                    if lattice.len() > most || bytes > BYTES {
                        return None;
                    }
                }
            }
            level = next;
        }
        Some(lattice)
    }

    fn with(&self, ideal: &Ideal, unit: usize, number: u32, key: u128) -> Ideal {
        let mut has = ideal.has.clone();
        has[unit] = true;
        let free = |next: &&usize| self.before[**next].iter().all(|before| has[*before]);
        let opened: Vec<usize> = self.after[unit].iter().filter(free).copied().collect();
        let ready = ideal.ready.iter().copied().filter(|other| *other != unit).chain(opened).collect();
        Ideal { number, key, has, ready }
    }

    /// The units that `ideal` has and `smaller`, a part of it, has not.
    fn between(&self, lattice: &Lattice, ideal: usize, smaller: usize) -> Vec<usize> {
        let has = |mut at: usize| {
            let mut has = vec![false; self.members.len()];
            while let Some(&(unit, next)) = lattice[at].first() {
                has[unit] = true;
                at = next as usize;
            }
            has
        };
        let (all, less) = (has(ideal), has(smaller));
        (0..all.len()).filter(|unit| all[*unit] && !less[*unit]).collect()
    }
}

struct Ideal {
    number: u32,
    key: u128,
    has: Vec<bool>,
    /// Units that it could have too.
    ready: Vec<usize>,
}

/// What a device would have, and what that costs it.
struct Segment<'a> {
    problem: &'a Bundles,
    time: f64,
    cpu_time: f64,
    size: f64,
    transfers: f64,
    /// Bundles that no accelerator can have.
    foreign: usize,
    /// By net: how many of its readers are here, and whether its source is.
    readers: Vec<u32>,
    owns: Vec<bool>,
}

impl<'a> Segment<'a> {
    fn new(problem: &'a Bundles) -> Segment<'a> {
        let (readers, owns) = (vec![0; problem.nets.len()], vec![false; problem.nets.len()]);
        Segment { problem, time: 0.0, cpu_time: 0.0, size: 0.0, transfers: 0.0, foreign: 0, readers, owns }
    }

    /// Puts a bundle in, or takes it out.
    fn turn(&mut self, bundle: usize, comes: bool) {
        let entry = &self.problem.bundles[bundle];
        let sign = if comes { 1.0 } else { -1.0 };
        self.time += sign * entry.accelerator_time;
        self.cpu_time += sign * entry.cpu_time;
        self.size += sign * entry.size;
        if !entry.on_accelerator {
            self.foreign = if comes { self.foreign + 1 } else { self.foreign - 1 };
        }
        for &net in &entry.reads {
            self.transfers -= self.charge(net);
            self.readers[net] = if comes { self.readers[net] + 1 } else { self.readers[net] - 1 };
            self.transfers += self.charge(net);
        }
        for &net in &entry.makes {
            self.transfers -= self.charge(net);
            self.owns[net] = comes;
            self.transfers += self.charge(net);
        }
    }

    fn charge(&self, net: usize) -> f64 {
        let (entry, here) = (&self.problem.nets[net], self.readers[net] as usize);
        let crosses = if self.owns[net] { here < entry.readers.len() } else { here > 0 };
        if crosses { entry.cost } else { 0.0 }
    }
}
