//! What becomes of runs that are interrupted: whether another plan may go on with them.

use std::collections::BTreeMap;

use edgecut_cluster::Cluster;
use edgecut_plan::Plan;
use smol_str::SmolStr;

use super::options::RunOptions;

/// How many plans in a row may fail without a result.
const MAX_FAILURES: u32 = 5;

/// What becomes of runs that are interrupted.
pub(super) struct Failover<'a> {
    options: &'a RunOptions,
    /// Runs that are not finished.
    pub left: u64,
    /// Plans in a row without a result.
    failures: u32,
    /// Whether any run was finished.
    has_results: bool,
    is_replanned: bool,
    /// Whether another plan may split groups: the memory of shards that were not measured is an estimate.
    pub may_split: bool,
    /// How often each agent failed.
    blamed: BTreeMap<SmolStr, u32>,
}

/// Runs that ended early, after what was measured of them is handed on.
pub(super) struct Interruption {
    pub finished: u64,
    pub failure: String,
    pub cause: Cause,
}

pub(super) enum Cause {
    /// An agent failed or was lost: this one, if it is known.
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

    /// Whether another plan may do better.
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
            // Of a plan that was made here: without shards, all is measured.
            Cause::Memory => self.is_replanned && std::mem::take(&mut self.may_split),
            Cause::Other => false,
        };
        let goes_on = may_help && self.failures <= MAX_FAILURES;
        self.is_replanned |= goes_on;
        goes_on
    }

    /// `cluster` without what failed twice although it answers.
    pub fn without_blamed(&self, cluster: &Cluster) -> Cluster {
        let mut rest = cluster.clone();
        rest.servers.retain(|server| self.blamed.get(&server.name).is_none_or(|count| *count < 2));
        rest
    }
}
