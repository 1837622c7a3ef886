//! Options of a search: seed, budget, time limit.

use std::time::Duration;

use super::stop::Stop;

/// How hard to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    pub seed: u64,
    /// Limit on the evaluated placements; by default it depends on the size of the problem.
    pub budget: Option<u64>,
    /// When to stop although budget is left; results then depend on the speed of the machine.
    pub cut_off: Option<Duration>,
    /// When to stop all searches.
    pub stop: Stop,
}

impl Default for Options {
    fn default() -> Options {
        Options { seed: 0, budget: None, cut_off: Some(Duration::from_secs(20)), stop: Stop::never() }
    }
}

/// Default limits on the evaluated placements, and on the groups in all of them.
const MAX_EVALUATIONS: u64 = 20_000;
const MAX_GROUP_EVALUATIONS: u64 = 40_000_000;

impl Options {
    /// The number of placements that may be evaluated for a problem with `groups` groups.
    pub fn evaluations(&self, groups: usize) -> u64 {
        self.budget.unwrap_or(MAX_EVALUATIONS.min(MAX_GROUP_EVALUATIONS / (1 + groups as u64)))
    }

    /// One of `parts` equal parts of the evaluations and of the time.
    pub fn part(&self, parts: u32, groups: usize) -> Options {
        let cut_off = self.cut_off.map(|limit| limit / parts);
        Options { budget: Some(self.evaluations(groups) / u64::from(parts)), cut_off, ..*self }
    }
}
