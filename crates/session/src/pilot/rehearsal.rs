//! Pilot runs of plans that are chosen already, such as the ends of a front: measured, and nothing is learnt from them.

use edgecut_graph::units::Micros;
use edgecut_plan::{Candidate, PlanRequest};

use super::{agents::PilotAgents, error::PlanningError, options::PilotOptions, outcome::PilotError};
use crate::run::perform::PerformError;

/// The latency of `candidate` in a pilot run; `None` if an agent lacks memory for it.
///
/// # Errors
/// If an agent fails, or nothing was measured.
pub fn rehearsed(
    agents: &PilotAgents<'_>,
    request: &PlanRequest<'_>,
    candidate: &Candidate,
    options: &PilotOptions,
) -> Result<Option<Micros>, PlanningError> {
    let plan = candidate.without_targets().to_plan(request)?;
    match agents.run(candidate, &plan, options) {
        Ok(outcome) => Ok(Some(outcome.outcome.latency.median_us)),
        Err(PilotError::Perform(PerformError::Run(run))) if run.memory().is_some() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
