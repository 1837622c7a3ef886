//! Searches for the assignment with the minimum largest load.
//!
//! `linear` cuts topological orders into contiguous segments, optimally for each order; [`ideals`] finds the optimal
//! contiguous split where that is feasible; `anneal` improves on them with arbitrary assignments.

mod anneal;
mod candidate;
pub mod ideals;
mod linear;

pub use candidate::ThroughputCandidate;

use super::{
    PlacementError, PlacementSolution, PlacementWorkload, bound,
    bundles::Bundles,
    exhaust,
    feasibility::check_feasible,
    options::{PlacementOptions, ROUNDING, START_TIME_SHARE},
};
use edgecut_plan::deadline::Deadline;

/// The part of all time by which the best contiguous split must be found, and how many of its steps are as a move.
const FOR_IDEALS: f64 = 0.5;
const STEPS_A_MOVE: u64 = 4;

/// Finds an assignment for `workload`.
///
/// # Errors
/// If some bundle fits on no device, or none was found that keeps within the memory.
pub fn solve(workload: &PlacementWorkload, options: &PlacementOptions) -> Result<PlacementSolution, PlacementError> {
    let deadline = Deadline::new(options.cut_off);
    let problem = Bundles::new(workload);
    check_feasible(workload, &problem)?;
    let (bound, bound_by) = bound::largest_load(&problem);
    if let Some(best) = best_of_all(&problem) {
        return answer(&problem, best.largest, "every assignment was tried", best);
    }
    let late = || deadline.elapsed() > START_TIME_SHARE;
    let mut starts = linear::search(workload, &problem, options.seed, &late);
    starts.push(ThroughputCandidate::of(&problem, easiest(&problem)));
    let upper =
        starts.iter().filter(|start| start.over <= 0.0).map(|start| start.largest).fold(f64::INFINITY, f64::min);
    let late = || deadline.elapsed() > FOR_IDEALS;
    starts.splice(..0, ideals::search(workload, &problem, upper, options.budget.saturating_mul(STEPS_A_MOVE), &late));
    let best = anneal::search(&problem, starts, bound * ROUNDING, options, &deadline);
    answer(&problem, bound, bound_by, best)
}

fn answer(
    problem: &Bundles,
    bound: f64,
    bound_by: &'static str,
    best: ThroughputCandidate,
) -> Result<PlacementSolution, PlacementError> {
    if best.over > problem.memory * 1e-12 {
        return Err(PlacementError::NoneFound { over: best.over });
    }
    let places = problem.operator_devices(&best.device);
    Ok(PlacementSolution { objective: best.largest, bound: bound.min(best.largest), bound_by, places })
}

/// The best of all assignments, if there are few enough to try.
fn best_of_all(problem: &Bundles) -> Option<ThroughputCandidate> {
    let mut best: Option<ThroughputCandidate> = None;
    let complete = exhaust::assignments(problem, problem.cpus, |device| {
        let found = ThroughputCandidate::of(problem, device.to_vec());
        if best.as_ref().is_none_or(|best| found.cmp_quality(best).is_lt()) {
            best = Some(found);
        }
    });
    best.filter(|_| complete)
}

/// Everything on the first CPU, or without one, accelerators filled one after another.
fn easiest(problem: &Bundles) -> Vec<usize> {
    if problem.cpus > 0 {
        return vec![problem.accelerators; problem.bundles.len()];
    }
    let (mut at, mut used) = (0, 0.0);
    let place = |bundle: &super::bundles::Bundle| {
        if used + bundle.size > problem.memory && at + 1 < problem.accelerators {
            (at, used) = (at + 1, 0.0);
        }
        used += bundle.size;
        at
    };
    problem.bundles.iter().map(place).collect()
}
