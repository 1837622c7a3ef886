//! The connections and data with which the planner measures shards and runs candidates.

use std::collections::BTreeMap;

use smol_str::SmolStr;
use tokio::runtime::Runtime;

use edgecut_graph::TensorData;
use edgecut_plan::{Candidate, Plan};

use super::{
    options::PilotOptions,
    outcome::{PilotError, PilotOutcome, pilot_run},
};
use crate::run::perform::RunContext;
use edgecut_agent::{Cluster, client::Fleet};

/// The agents that measure shards and run candidates, with the contents that are sent to them.
#[derive(Clone, Copy)]
pub struct PilotAgents<'a> {
    pub fleet: &'a Fleet,
    pub cluster: &'a Cluster,
    /// Contents of inputs and parameters that are not generated from their names.
    pub given: &'a BTreeMap<SmolStr, TensorData>,
    /// The runtime for network I/O with agents; nothing is computed on it.
    pub runtime: &'a Runtime,
}

impl PilotAgents<'_> {
    /// Runs `plan`, which was made from `candidate`.
    ///
    /// # Errors
    /// As [`pilot_run`].
    pub fn run(&self, candidate: &Candidate, plan: &Plan, options: &PilotOptions) -> Result<PilotOutcome, PilotError> {
        let PilotAgents { fleet, cluster, given, runtime } = *self;
        let context = RunContext { fleet, cluster, graph: &candidate.expanded.graph, given };
        runtime.block_on(pilot_run(&context, plan, options))
    }
}
