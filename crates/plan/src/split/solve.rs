//! The best placement with splits, by the strategies of `split/strategy`.

use super::{
    bound::{bound_by, bounds, is_relaxed, proof},
    strategy::STRATEGIES,
};
use crate::{
    candidate::{Candidate, strategy::Progress},
    judge::{no_plan::NoPlan, solution::evaluate},
    request::{PlanRequest, choice::Choices},
};

/// The best plan found for `request`, whole groups and split ones, without schedules. A request like another plan splits
/// just what that splits; any other continues from the splits `start`, those of a plan for the same request at other
/// costs of shards, if there are any.
///
/// By any rule but `Ratios::Tuned` what is best to split is split in that rule's ratios, although leaving it whole may
/// then be better.
///
/// # Errors
/// If the tables contradict each other, or no plan meets limits and targets; then with the reason.
pub fn solve(request: &PlanRequest<'_>, start: Option<&Choices>) -> Result<Candidate, NoPlan> {
    met(request, nearest(request, start)?)
}

/// The same; where no plan that meets limits and targets is found, the nearest one, which says what it misses.
///
/// # Errors
/// If the tables contradict each other, or some group runs nowhere.
pub fn nearest(request: &PlanRequest<'_>, start: Option<&Choices>) -> Result<Candidate, NoPlan> {
    Progress::new(request, start).try_all(&STRATEGIES)?.finish()
}

/// `candidate`, if it meets limits and targets.
///
/// # Errors
/// If it does not: what every plan of `request` misses, if that is proved, else what this one misses.
pub fn met(request: &PlanRequest<'_>, candidate: Candidate) -> Result<Candidate, NoPlan> {
    if candidate.solution.missed.is_empty() {
        return Ok(candidate);
    }
    let unsplit = request.expanded(&Choices::new())?;
    let proof = proof(request, &unsplit.problem);
    let nearest = candidate.solution.figures(bounds(request, &unsplit.problem));
    // A complete search of placements says nothing of splits and schedules.
    let is_searched = candidate.solution.is_infeasible && !is_relaxed(request);
    let proven = !proof.is_empty() || is_searched;
    let shortages = if proof.is_empty() { nearest.shortages.clone() } else { proof };
    Err(NoPlan::Targets { proven, shortages, nearest: Some(Box::new(nearest)) })
}

/// `candidate` at the costs that `request` has now: the same splits, devices and orders.
///
/// # Errors
/// If the candidate is of another request. What it misses now it says itself.
pub fn reevaluate(request: &PlanRequest<'_>, candidate: &Candidate) -> Result<Candidate, NoPlan> {
    let expanded = request.expanded(&candidate.applied)?;
    let mut solution = evaluate(&expanded.problem, candidate.solution.evaluation.placement.clone())?;
    solution.evaluations = candidate.solution.evaluations;
    let mut candidate = Candidate { solution, expanded, ..candidate.clone() };
    bound_by(request, &mut candidate)?;
    Ok(candidate)
}
