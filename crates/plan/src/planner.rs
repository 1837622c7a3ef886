//! From a request to a candidate, by the request's costs alone.

use crate::{
    candidate::Candidate,
    constrained,
    no_plan::{NoPlan, Shortage},
    problem::ProblemError,
    request::PlanRequest,
    split::{Choices, bound, met, nearest as split_nearest},
};

/// The best plan found for `request`: groups whole or split, and where devices have too little memory for that, a plan
/// within their limits, with schedules if need be. [`Candidate::to_plan`] makes the plan file of it.
///
/// Deterministic by the request's seed and budget, but for the searches' own cut-off.
///
/// # Errors
/// If the tables contradict each other, or no plan meets limits and targets; then with the reason.
pub fn plan(request: &PlanRequest<'_>) -> Result<Candidate, NoPlan> {
    met(request, nearest(request)?)
}

/// The same; where no plan that meets limits and targets is found, the nearest one, which says what it misses.
///
/// # Errors
/// If the tables contradict each other, or some group runs nowhere.
pub fn nearest(request: &PlanRequest<'_>) -> Result<Candidate, NoPlan> {
    Ok(constrained::within_memory(request, split_nearest(request, None)?))
}

/// The limits and targets of `request` that no plan meets at its costs, by bounds.
///
/// # Errors
/// If the tables contradict each other.
pub fn proof(request: &PlanRequest<'_>) -> Result<Vec<Shortage>, NoPlan> {
    let unsplit = request.expand(&Choices::new()).map_err(|error| ProblemError { what: error.to_string() })?;
    Ok(bound::proof(request, &unsplit.problem))
}
