//! What an agent measures while it runs its part of a plan. Times are on the agent's own clock.

use smol_str::SmolStr;

use super::setup::ValueId;
use crate::units::{Bytes, Micros};

/// All that one server did for one inference.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub inference: u64,
    /// In the order in which they ended.
    pub stages: Vec<StageTime>,
    pub transfers: Vec<TransferTime>,
    pub arrivals: Vec<ArrivalTime>,
    /// Of all inferences so far.
    pub memory: Vec<DeviceMemory>,
}

/// One stage on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct StageTime {
    pub device: SmolStr,
    /// Index into the device's partition.
    pub stage: u32,
    /// When the last operand was there; zero for a stage without operands.
    pub ready: Micros,
    pub start: Micros,
    /// When its results were there, which is a little after the end of its last step.
    pub end: Micros,
    pub steps: Vec<StepTime>,
}

/// One group of operators within a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// The plan's number of the group.
    pub group: u32,
    pub end: Micros,
    /// Wall clock of the computation alone.
    pub wall: Micros,
    /// Processor time of all threads that took part.
    pub cpu: Micros,
    pub workspace: Bytes,
}

/// One value sent to another server.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferTime {
    pub value: ValueId,
    /// The server it went to.
    pub to: SmolStr,
    /// When it was there to be sent.
    pub ready: Micros,
    pub start: Micros,
    /// When its last byte was handed to the network.
    pub end: Micros,
}

/// One value received from another server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrivalTime {
    pub value: ValueId,
    /// When its first bytes came in, and when all were there.
    pub start: Micros,
    pub end: Micros,
}

/// The memory that a partition took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMemory {
    pub device: SmolStr,
    /// What the loaded stages hold for good: packed weights and constants.
    pub parameters: Bytes,
    /// Most that parameters, live tensors and workspace took together.
    pub peak: Bytes,
    /// Most that the stages took while they were made ready: contents of parameters as they come, and packed.
    pub loading: Bytes,
}
