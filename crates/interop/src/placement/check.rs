//! Independent checker of assignments, by the rules of the workload's authors. Shares no code with the searches.

use std::collections::{BTreeMap, BTreeSet};

use super::{PlacementWorkload, WorkloadDevice};

/// What is wrong with an assignment.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlacementViolation {
    #[error("{places} device assignments for {operators} operators")]
    Count { operators: usize, places: usize },
    #[error("{0} is not a device of the workload")]
    NoSuchDevice(WorkloadDevice),
    #[error("operator {id} is on {place}, which cannot compute it")]
    Unsupported { id: i64, place: WorkloadDevice },
    #[error("operators {first} and {second} have the same colour but different devices")]
    Colour { first: i64, second: i64 },
    #[error("{place} holds {size} bytes, its limit is {limit}")]
    Memory { place: WorkloadDevice, size: f64, limit: f64 },
    #[error("the objective is stated as {stated}, the assignment's is {real}")]
    Objective { stated: f64, real: f64 },
    #[error("the bound {bound} is above the objective {objective}")]
    Bound { bound: f64, objective: f64 },
}

/// Rules that hold for both objectives: devices, support, colours, memory.
///
/// # Errors
/// With the first flaw that is found.
pub fn placement(workload: &PlacementWorkload, places: &[WorkloadDevice]) -> Result<(), PlacementViolation> {
    if places.len() != workload.operators.len() {
        return Err(PlacementViolation::Count { operators: workload.operators.len(), places: places.len() });
    }
    let mut sizes: BTreeMap<WorkloadDevice, f64> = BTreeMap::new();
    let mut colours: BTreeMap<i64, (WorkloadDevice, i64)> = BTreeMap::new();
    for (operator, &place) in workload.operators.iter().zip(places) {
        let there = match place {
            WorkloadDevice::Accelerator(index) => index < workload.accelerators,
            WorkloadDevice::Cpu(index) => index < workload.cpus,
        };
        if !there {
            return Err(PlacementViolation::NoSuchDevice(place));
        }
        if matches!(place, WorkloadDevice::Accelerator(_)) {
            if !operator.on_accelerator {
                return Err(PlacementViolation::Unsupported { id: operator.id, place });
            }
            *sizes.entry(place).or_default() += operator.size;
        }
        if let Some(colour) = operator.colour {
            let (first_place, first) = *colours.entry(colour).or_insert((place, operator.id));
            if first_place != place {
                return Err(PlacementViolation::Colour { first, second: operator.id });
            }
        }
    }
    let over = sizes.into_iter().find(|(_, size)| *size > workload.memory * (1.0 + 1e-12));
    over.map_or(Ok(()), |(place, size)| Err(PlacementViolation::Memory { place, size, limit: workload.memory }))
}

/// The largest load of any device.
pub fn largest_load(workload: &PlacementWorkload, places: &[WorkloadDevice]) -> f64 {
    let mut loads: BTreeMap<WorkloadDevice, f64> = BTreeMap::new();
    for (operator, &place) in workload.operators.iter().zip(places) {
        let time = match place {
            WorkloadDevice::Accelerator(_) => operator.accelerator_time,
            WorkloadDevice::Cpu(_) => operator.cpu_time,
        };
        *loads.entry(place).or_default() += time;
    }
    let crossing: Vec<_> = workload.edges.iter().filter(|(from, to)| places[*from] != places[*to]).collect();
    let sent: BTreeSet<(usize, WorkloadDevice)> = crossing.iter().map(|(from, _)| (*from, places[*from])).collect();
    let received: BTreeSet<(usize, WorkloadDevice)> = crossing.iter().map(|(from, to)| (*from, places[*to])).collect();
    for (source, place) in sent.into_iter().chain(received) {
        if matches!(place, WorkloadDevice::Accelerator(_)) {
            *loads.entry(place).or_default() += workload.operators[source].transfer;
        }
    }
    loads.into_values().fold(0.0, f64::max)
}

/// Checks a throughput answer whole.
///
/// # Errors
/// With the first flaw that is found.
pub fn throughput(workload: &PlacementWorkload, answer: &super::PlacementSolution) -> Result<(), PlacementViolation> {
    placement(workload, &answer.places)?;
    figures(answer, largest_load(workload, &answer.places))
}

/// Finish time of one sample; `None` if the blocks form a cycle.
///
/// Found by relaxing start times until nothing changes, which is slow and plain.
pub fn sample_latency(workload: &PlacementWorkload, places: &[WorkloadDevice]) -> Option<f64> {
    let whole: Vec<u32> = vec![0; places.len()];
    let pieces = pieces(workload, places);
    relax(workload, places, &whole).or_else(|| relax(workload, places, &pieces))
}

/// By operator: how often a path to it has left its accelerator and come back, at most.
fn pieces(workload: &PlacementWorkload, places: &[WorkloadDevice]) -> Vec<u32> {
    let returns = |place: WorkloadDevice| {
        let mut count = vec![0u32; places.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for &(from, to) in &workload.edges {
                let came_back = places[to] == place && places[from] != place;
                // The first entry is not a re-entry; a path that starts here is inside from the start.
                let been_here = count[from].max(u32::from(places[from] == place));
                let now = been_here + u32::from(came_back);
                if now > count[to] {
                    count[to] = now;
                    changed = true;
                }
            }
        }
        count
    };
    let mut pieces = vec![0; places.len()];
    let used: BTreeSet<WorkloadDevice> =
        places.iter().copied().filter(|p| matches!(p, WorkloadDevice::Accelerator(_))).collect();
    for place in used {
        let count = returns(place);
        for (piece, (_, count)) in pieces.iter_mut().zip(places.iter().zip(count)).filter(|(_, (p, _))| **p == place) {
            *piece = count.max(1) - 1;
        }
    }
    pieces
}

fn relax(workload: &PlacementWorkload, places: &[WorkloadDevice], pieces: &[u32]) -> Option<f64> {
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Unit {
        Block(WorkloadDevice, u32),
        Alone(usize),
    }
    let unit = |op: usize| match places[op] {
        WorkloadDevice::Accelerator(_) => Unit::Block(places[op], pieces[op]),
        WorkloadDevice::Cpu(_) => Unit::Alone(op),
    };
    let mut duration: BTreeMap<Unit, f64> = BTreeMap::new();
    for (op, operator) in workload.operators.iter().enumerate() {
        let time = if let WorkloadDevice::Cpu(_) = places[op] { operator.cpu_time } else { operator.accelerator_time };
        *duration.entry(unit(op)).or_default() += time;
    }
    let mut after: BTreeSet<(Unit, Unit)> = BTreeSet::new();
    let mut transfers: BTreeSet<(usize, Unit)> = BTreeSet::new();
    for &(from, to) in workload.edges.iter().filter(|(from, to)| unit(*from) != unit(*to)) {
        after.insert((unit(from), unit(to)));
        transfers.insert((from, unit(from)));
        transfers.insert((from, unit(to)));
    }
    for (source, unit) in transfers.into_iter().filter(|(_, unit)| matches!(unit, Unit::Block(..))) {
        *duration.entry(unit).or_default() += workload.operators[source].transfer;
    }
    let blocks: Vec<Unit> = duration.keys().copied().filter(|u| matches!(u, Unit::Block(..))).collect();
    for pair in blocks.windows(2) {
        if let (Unit::Block(a, _), Unit::Block(b, _)) = (pair[0], pair[1])
            && a == b
        {
            after.insert((pair[0], pair[1]));
        }
    }
    let mut starts: BTreeMap<Unit, f64> = duration.keys().map(|unit| (*unit, 0.0)).collect();
    for _ in 0..=duration.len() {
        let mut changed = false;
        for (before, next) in &after {
            let ready = starts[before] + duration[before];
            if ready > starts[next] {
                starts.insert(*next, ready);
                changed = true;
            }
        }
        if !changed {
            return Some(starts.iter().map(|(unit, start)| start + duration[unit]).fold(0.0, f64::max));
        }
    }
    None
}

/// Checks a latency answer whole.
///
/// # Errors
/// With the first flaw that is found.
pub fn latency(workload: &PlacementWorkload, answer: &super::PlacementSolution) -> Result<(), PlacementViolation> {
    placement(workload, &answer.places)?;
    figures(answer, sample_latency(workload, &answer.places).unwrap_or(f64::INFINITY))
}

fn figures(answer: &super::PlacementSolution, real: f64) -> Result<(), PlacementViolation> {
    let (stated, bound) = (answer.objective, answer.bound);
    if (stated - real).abs() > 1e-9 * real.max(1.0) {
        return Err(PlacementViolation::Objective { stated, real });
    }
    if bound > real * (1.0 + 1e-9) {
        return Err(PlacementViolation::Bound { bound, objective: real });
    }
    Ok(())
}
