//! Effort and randomness of the schedule search.

use std::time::Instant;

/// How hard to search, and from which seed.
#[derive(Debug, Clone, Copy)]
pub struct RematOptions {
    pub seed: u64,
    /// Schedule steps to evaluate.
    pub budget: u64,
    /// The time at which to stop in any case; results then depend on the speed of the machine.
    pub cut_off: Option<Instant>,
}
