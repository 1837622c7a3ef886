//! Decides whether another plan continues runs that were interrupted.

use std::collections::BTreeMap;

use edgecut_agent::Cluster;
use edgecut_plan::Plan;
use smol_str::SmolStr;

use super::options::RunOptions;

/// Maximum number of consecutive failures without a result.
const MAX_FAILURES: u32 = 5;

/// The state of runs that other plans may continue.
pub(super) struct Failover<'a> {
    options: &'a RunOptions,
    /// Number of runs that are not finished.
    pub left: u64,
    /// Number of consecutive failures without a result.
    failures: u32,
    /// Whether any run was finished.
    has_results: bool,
    is_replanned: bool,
    /// Whether another plan may split groups. The memory of shards that were not measured is an estimate.
    pub may_split: bool,
    /// Number of failures of each agent.
    blamed: BTreeMap<SmolStr, u32>,
}

/// Runs that ended early. Their measurements were already reported.
pub(super) struct Interruption {
    pub finished: u64,
    pub failure: String,
    pub cause: Cause,
}

pub(super) enum Cause {
    /// An agent failed or was lost: the named one, if it is known.
    Agent(Option<SmolStr>),
    /// A device has too little memory.
    Memory,
    Other,
}

impl<'a> Failover<'a> {
    pub fn new(options: &'a RunOptions, plan: &Plan) -> Failover<'a> {
        Failover {
            options,
            left: options.runs_of_a_plan(),
            failures: 0,
            has_results: false,
            is_replanned: false,
            may_split: !plan.splits.is_empty(),
            blamed: BTreeMap::new(),
        }
    }

    /// Records the interruption. Returns whether to try another plan.
    pub fn goes_on(&mut self, interruption: Interruption) -> bool {
        let Interruption { finished, cause, .. } = interruption;
        self.left = self.left.saturating_sub(finished);
        self.has_results |= finished > 0;
        self.failures = if finished > 0 { 1 } else { self.failures + 1 };
        let may_help = match cause {
            Cause::Agent(agent) => {
                *self.blamed.entry(agent.unwrap_or_default()).or_default() += 1;
                self.options.replans(self.has_results)
            }
            // Only for a plan that was made here. Without shards, its memory is measured, not estimated.
            Cause::Memory => self.is_replanned && std::mem::take(&mut self.may_split),
            Cause::Other => false,
        };
        let goes_on = may_help && self.failures <= MAX_FAILURES;
        self.is_replanned |= goes_on;
        goes_on
    }

    /// `cluster` without the servers whose agents failed twice, even if they answer.
    pub fn without_blamed(&self, cluster: &Cluster) -> Cluster {
        let mut rest = cluster.clone();
        rest.servers.retain(|server| self.blamed.get(&server.name).is_none_or(|count| *count < 2));
        rest
    }
}
