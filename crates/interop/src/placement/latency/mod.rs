//! Searches for the assignment of minimum latency.

mod anneal;
mod candidate;
mod segments;

pub use candidate::LatencyCandidate;

use super::{
    PlacementError, PlacementSolution, PlacementWorkload, bound,
    bundles::Bundles,
    exhaust,
    feasibility::check_feasible,
    latency_evaluator::LatencyEvaluator,
    options::{PlacementOptions, ROUNDING, START_TIME_SHARE},
};
use edgecut_plan::deadline::Deadline;

/// Finds an assignment for `workload`.
///
/// # Errors
/// If some bundle fits on no device, or none was found that keeps within the memory.
pub fn solve(workload: &PlacementWorkload, options: &PlacementOptions) -> Result<PlacementSolution, PlacementError> {
    let deadline = Deadline::new(options.cut_off);
    let problem = Bundles::new(workload);
    check_feasible(workload, &problem)?;
    let (bound, bound_by) = bound::latency(workload, &problem);
    if let Some(best) = best_of_all(workload, &problem) {
        return answer(&problem, best.latency, "every assignment was tried", best);
    }
    let late = || deadline.elapsed() > START_TIME_SHARE;
    let starts = segments::search(workload, &problem, options.seed, &late);
    let best = anneal::search(workload, &problem, starts, bound * ROUNDING, options, &deadline);
    answer(&problem, bound, bound_by, best)
}

fn answer(
    problem: &Bundles,
    bound: f64,
    bound_by: &'static str,
    best: LatencyCandidate,
) -> Result<PlacementSolution, PlacementError> {
    if best.over > problem.memory * 1e-12 || best.latency.is_infinite() {
        return Err(PlacementError::NoneFound { over: best.over });
    }
    let places = problem.operator_devices(&best.device);
    Ok(PlacementSolution { objective: best.latency, bound: bound.min(best.latency), bound_by, places })
}

/// The best of all assignments, if there are few enough to try.
fn best_of_all(workload: &PlacementWorkload, problem: &Bundles) -> Option<LatencyCandidate> {
    let mut best: Option<LatencyCandidate> = None;
    let mut evaluator = LatencyEvaluator::new(workload, problem);
    let complete = exhaust::assignments(problem, problem.cpus.min(1), |device| {
        let found = LatencyCandidate::of(&mut evaluator, problem, device.to_vec());
        if best.as_ref().is_none_or(|best| found.cmp_quality(best).is_lt()) {
            best = Some(found);
        }
    });
    best.filter(|_| complete)
}
