//! What a strategy found: the account of how a candidate was chosen.

use crate::judge::no_plan::Shortage;

/// One strategy, in the order in which they were tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    pub strategy: &'static str,
    pub outcome: AttemptOutcome,
    /// Placements evaluated by its searches that found a plan.
    pub evaluations: u64,
    /// Whether its plan is the candidate.
    pub is_kept: bool,
}

/// See [`Attempt`].
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptOutcome {
    /// It was not tried, for this reason.
    Skipped(&'static str),
    /// It was tried and found no plan.
    NoPlanFound,
    /// The objective's value of a plan that meets limits and targets.
    Met(f64),
    /// What its nearest plan misses.
    Missed(Vec<Shortage>),
}
