//! What an agent measures during an inference. Times are on the agent's own clock.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::setup::ValueId;
use edgecut_graph::units::{Bytes, Joules, Micros};
use edgecut_profile::BusyProcessors;

/// All that one server did for one inference.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InferenceTrace {
    pub inference: u64,
    /// In order of their ends.
    pub stages: Vec<StageTime>,
    pub transfers: Vec<TransferTime>,
    pub arrivals: Vec<ArrivalTime>,
    /// Over all inferences so far.
    pub memory: Vec<DeviceMemory>,
    /// Of the sources that were read when it ended: each as often as its resolution allows.
    pub energy: Vec<SourceEnergy>,
    /// `None` if it is unknown, or was reported less than 0.1 s ago.
    pub machine: Option<MachineUse>,
}

/// One stage on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageTime {
    pub device: SmolStr,
    /// Index into the device's partition.
    pub stage: u32,
    /// When the last operand was complete; zero without operands.
    pub ready: Micros,
    pub start: Micros,
    /// When its results were available, slightly after the end of its last step.
    pub end: Micros,
    pub steps: Vec<StepTime>,
    /// Name and version of what computed it, where its engine was chosen for it; empty for the device's own.
    pub engine: SmolStr,
    /// How many of its operators another engine computed, because this one cannot.
    pub fallbacks: u32,
}

/// One group of operators within a stage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// The group's number in the plan.
    pub group: u32,
    pub end: Micros,
    /// Wall-clock time since the step before it, or the start of the stage.
    pub wall: Micros,
    /// CPU time of all threads.
    pub cpu: Micros,
    pub workspace: Bytes,
}

/// One value sent to another server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransferTime {
    pub value: ValueId,
    /// The server it went to.
    pub to: SmolStr,
    /// When it was complete.
    pub ready: Micros,
    pub start: Micros,
    /// When its last byte was passed to the network.
    pub end: Micros,
    /// What was passed to the network for it.
    pub bytes: Bytes,
}

/// One value received from another server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ArrivalTime {
    pub value: ValueId,
    /// When its first bytes arrived, and when it was complete.
    pub start: Micros,
    pub end: Micros,
}

/// The memory of a partition on its device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    pub device: SmolStr,
    /// What the loaded stages hold: packed weights and constants.
    pub parameters: Bytes,
    /// Peak of parameters, live tensors and workspace together.
    pub peak: Bytes,
    /// Peak while loading: parameters as received, and packed.
    pub loading: Bytes,
}

/// How busy the machine of the server has been since the run was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// The same for all servers of one machine; empty if unknown.
    pub id: SmolStr,
    pub busy: BusyProcessors,
}

/// What a source of energy of the server has counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceEnergy {
    /// With its parts: `powercap: package-0`.
    pub source: String,
    /// Since the run was set up.
    pub total: Joules,
}
