//! Searches for the assignment with the smallest largest load.
//!
//! [`linear`] cuts topological orders into contiguous stretches, exactly for each order; [`ideals`] finds the best of all
//! contiguous splits where that is possible; [`anneal`] goes on from there by moving, swapping and shifting bundles,
//! contiguous or not.

pub mod anneal;
pub mod ideals;
pub mod linear;

use std::time::Duration;

use super::{
    Answer, NoAnswer, Workload, bound, exhaust,
    load::{Bundles, Loads},
};
use crate::plan::pace::Pace;

/// Nothing is sought that is nearer to the bound than rounding.
pub const ROUNDING: f64 = 1.0 + 1e-8;

/// The part of all time in which cuts of orders may be made.
pub const FOR_STARTS: f64 = 0.3;

/// The part of all time by which the best contiguous split must be found, and how many of its steps are as a move.
const FOR_IDEALS: f64 = 0.5;
const STEPS_A_MOVE: u64 = 4;

/// How hard to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    pub seed: u64,
    /// Moves that may be tried.
    pub budget: u64,
    /// When to stop although budget is left; results then depend on the machine's speed.
    pub cut_off: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options { seed: 0, budget: 12_000_000, cut_off: Some(Duration::from_secs(8)) }
    }
}

/// A device for every bundle, and how good that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub device: Vec<usize>,
    pub largest: f64,
    /// Bytes above the accelerators' memory.
    pub over: f64,
}

/// Finds an assignment for `workload`.
///
/// # Errors
/// If some bundle fits on no device, or none was found that keeps within the memory.
pub fn solve(workload: &Workload, options: &Options) -> Result<Answer, NoAnswer> {
    let pace = Pace::new(options.cut_off);
    let problem = Bundles::new(workload);
    possible(workload, &problem)?;
    let (bound, bound_by) = bound::largest_load(&problem);
    if let Some(best) = best_of_all(&problem) {
        return answer(&problem, best.largest, "every assignment was tried", best);
    }
    let late = || pace.used() > FOR_STARTS;
    let mut starts = linear::search(workload, &problem, options.seed, &late);
    starts.push(Candidate::of(&problem, easiest(&problem)));
    let upper =
        starts.iter().filter(|start| start.over <= 0.0).map(|start| start.largest).fold(f64::INFINITY, f64::min);
    let late = || pace.used() > FOR_IDEALS;
    starts.splice(..0, ideals::search(workload, &problem, upper, options.budget.saturating_mul(STEPS_A_MOVE), &late));
    let best = anneal::search(&problem, starts, bound * ROUNDING, options, &pace);
    answer(&problem, bound, bound_by, best)
}

fn answer(problem: &Bundles, bound: f64, bound_by: &'static str, best: Candidate) -> Result<Answer, NoAnswer> {
    if best.over > problem.memory * 1e-12 {
        return Err(NoAnswer::NoneFound { over: best.over });
    }
    let places = problem.places(&best.device);
    Ok(Answer { objective: best.largest, bound: bound.min(best.largest), bound_by, places })
}

/// The best of all assignments, if there are few enough to try.
fn best_of_all(problem: &Bundles) -> Option<Candidate> {
    let mut best: Option<Candidate> = None;
    let complete = exhaust::assignments(problem, problem.cpus, |device| {
        let found = Candidate::of(problem, device.to_vec());
        if best.as_ref().is_none_or(|best| found.better(best)) {
            best = Some(found);
        }
    });
    best.filter(|_| complete)
}

/// Whether every bundle fits somewhere.
pub fn possible(workload: &Workload, problem: &Bundles) -> Result<(), NoAnswer> {
    if problem.cpus > 0 {
        return Ok(());
    }
    for bundle in &problem.bundles {
        let operators = workload.ids(&bundle.operators);
        if !bundle.on_accelerator {
            return Err(NoAnswer::NoDevice { operators });
        }
        if bundle.size > problem.memory {
            return Err(NoAnswer::TooLarge { operators, need: bundle.size, limit: problem.memory });
        }
    }
    let need: f64 = problem.bundles.iter().map(|b| b.size).sum();
    let room = problem.memory * problem.accelerators as f64;
    if need > room {
        return Err(NoAnswer::Memory { need, room, count: workload.accelerators });
    }
    Ok(())
}

/// Everything on the first CPU, or without one, accelerators filled one after another.
fn easiest(problem: &Bundles) -> Vec<usize> {
    if problem.cpus > 0 {
        return vec![problem.accelerators; problem.bundles.len()];
    }
    let (mut at, mut used) = (0, 0.0);
    let place = |bundle: &super::load::Bundle| {
        if used + bundle.size > problem.memory && at + 1 < problem.accelerators {
            (at, used) = (at + 1, 0.0);
        }
        used += bundle.size;
        at
    };
    problem.bundles.iter().map(place).collect()
}

impl Candidate {
    pub fn of(problem: &Bundles, device: Vec<usize>) -> Candidate {
        let loads = Loads::new(problem, device);
        let allowed = loads
            .device
            .iter()
            .enumerate()
            .all(|(b, d)| *d >= problem.accelerators || problem.bundles[b].on_accelerator);
        let largest = if allowed { loads.largest() } else { f64::INFINITY };
        Candidate { largest, over: loads.over(), device: loads.device }
    }

    /// Whether this is to be preferred: within memory first, then the smaller load.
    pub fn better(&self, other: &Candidate) -> bool {
        self.over.total_cmp(&other.over).then(self.largest.total_cmp(&other.largest)).is_lt()
    }
}
