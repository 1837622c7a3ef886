//! What planning comes to, before it is printed, written or returned.

use edgecut_plan::{Candidate, Plan, PlanRequest};

/// What is left to do once devices, costs and, of a single plan, the search are done.
pub(super) enum Found<'a> {
    /// A plan, and what to add to its notes.
    Candidate { request: &'a PlanRequest<'a>, candidate: &'a Candidate, notes: Vec<String> },
    /// The request of a front.
    Request(&'a PlanRequest<'a>),
    /// Groups to be moved in another plan.
    Moves { request: &'a PlanRequest<'a>, of: &'a Plan },
}
