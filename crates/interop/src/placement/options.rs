//! Effort and randomness of the placement searches.

use std::time::Duration;

/// Objectives within this factor of the lower bound count as optimal.
pub(super) const ROUNDING: f64 = 1.0 + 1e-8;

/// Share of the time limit that may be spent on initial assignments.
pub(super) const START_TIME_SHARE: f64 = 0.3;

/// How hard to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlacementOptions {
    pub seed: u64,
    /// Moves that may be tried.
    pub budget: u64,
    /// When to stop although budget is left; results then depend on the machine's speed.
    pub cut_off: Option<Duration>,
}

impl Default for PlacementOptions {
    fn default() -> PlacementOptions {
        PlacementOptions { seed: 0, budget: 12_000_000, cut_off: Some(Duration::from_secs(8)) }
    }
}
