//! Profiling on an agent: the request ([`ProfileTask`]) and its results ([`ProfileEvent`]).

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::named_tensors::StreamedTensor;
use edgecut_engine::EngineChoice;
use edgecut_graph::{
    Granularity, Graph,
    units::{Bytes, Micros},
};
use edgecut_profile::{Cost, Measurement, MeasurementMode, Sampling, Signature};

/// What to measure on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileTask {
    /// The device's name on its server.
    pub device: SmolStr,
    /// Threads to compute with; by default the agent's own number.
    pub threads: Option<u32>,
    /// The engine to compute with; by default the agent's own.
    #[serde(default)]
    pub engine: Option<EngineChoice>,
    pub mode: MeasurementMode,
    pub granularity: Granularity,
    pub sampling: Sampling,
    /// How long to wait for the device; by default as the agent says.
    #[serde(default)]
    pub wait: Option<Micros>,
    /// Whether to measure every item that is not in `known`.
    pub items: bool,
    /// Whether to measure the model as a whole, after the items.
    pub whole: bool,
    /// Bytes to evict from the caches before every sample of the whole: the working set of the model that the graph is
    /// a part of.
    #[serde(default, rename = "displaces")]
    pub cache_flush: Option<Bytes>,
    /// Signatures that are measured already. Used by [`MeasurementMode::Isolated`] only.
    pub known: HashSet<Signature>,
    pub graph: Graph,
    /// Inputs and parameters whose contents follow; others are generated from their names.
    pub streamed: Vec<StreamedTensor>,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ProfileEvent {
    Item(Measurement),
    Whole(Cost),
    /// Who is measuring on the agent's machine, so that this client has to wait.
    WaitingFor(String),
}
