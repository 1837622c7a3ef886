//! From a request to a candidate, by the request's costs alone.

use crate::{candidate::Candidate, constrained::within_memory, request::PlanRequest, solve::NoPlan, split::solve};

/// The best plan found for `request`: groups whole or split, and where devices have too little memory for that, a plan
/// within their limits, with schedules if need be. [`Candidate::to_plan`] makes the plan file of it.
///
/// Deterministic by the request's seed and budget, but for the searches' own cut-off.
///
/// # Errors
/// If the tables contradict each other, or no plan meets the targets; then with the reason.
pub fn plan(request: &PlanRequest<'_>) -> Result<Candidate, NoPlan> {
    within_memory(request, solve::solve(request, None))
}
