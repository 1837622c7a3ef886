//! Who measures and runs for the planner.

use std::collections::BTreeMap;

use smol_str::SmolStr;
use tokio::runtime::Runtime;

use edgecut_graph::TensorData;

use crate::{Cluster, agent::Fleet};

/// The agents that measure and run, and what they are given.
#[derive(Clone, Copy)]
pub struct PilotAgents<'a> {
    pub fleet: &'a Fleet,
    pub cluster: &'a Cluster,
    /// Contents of inputs and parameters that are not generated from their names.
    pub given: &'a BTreeMap<SmolStr, TensorData>,
    /// On which conversations with agents run; nothing is computed on it.
    pub runtime: &'a Runtime,
}
