//! What planning comes to, before it is printed, written or returned.

use edgecut_graph::units::Micros;
use edgecut_plan::{Candidate, Plan, PlanRequest};

use crate::Failure;

/// Runs a plan on the agents, and returns its latency; `None` if an agent lacks memory for it.
pub(super) type Rehearse<'a> = dyn Fn(&Candidate) -> Result<Option<Micros>, Failure> + 'a;

/// What is left to do once devices, costs and, of a single plan, the search are done.
pub(super) enum Found<'a> {
    /// A plan, and what to add to its notes.
    Candidate { request: &'a PlanRequest<'a>, candidate: &'a Candidate, notes: Vec<String> },
    /// The request of a front, and what runs the ends of it, if they are to be run.
    Front { request: &'a PlanRequest<'a>, rehearse: Option<&'a Rehearse<'a>> },
    /// Groups to be moved in another plan.
    Moves { request: &'a PlanRequest<'a>, of: &'a Plan },
}
