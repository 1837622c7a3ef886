//! What goes into the run's state machine and what comes out of it.

use smol_str::SmolStr;

use crate::protocol::inference_trace::{InferenceTrace, StepTime};
use edgecut_graph::{
    TensorData,
    units::{Bytes, Micros},
};

/// What the caller must do after an event.
#[derive(Debug, Default, PartialEq)]
pub(in crate::server) struct Effects {
    /// Values to send, in this order.
    pub sends: Vec<PendingSend>,
    /// The model's outputs, once all of an inference have reached the sink, with their indices among the sink's values.
    pub outputs: Option<(u64, Vec<(u32, TensorData)>)>,
    /// The trace of an inference that this server has completed.
    pub finished: Option<InferenceTrace>,
}

/// A value to be sent to a peer.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::server) struct PendingSend {
    pub inference: u64,
    /// Index into `Setup::sends`.
    pub send: usize,
    pub data: TensorData,
    /// When the value was complete.
    pub ready: Micros,
}

/// A stage that is to run now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::server) struct ScheduledStage {
    pub inference: u64,
    /// Index into the partition's stages.
    pub index: usize,
    /// When the last operand was complete; zero without operands.
    pub ready: Micros,
}

/// A stage with its operands. Operands that nothing else needs have no other owner: the engine frees them after their
/// last use.
#[derive(Debug, PartialEq)]
pub(in crate::server) struct StageTask {
    pub stage: ScheduledStage,
    pub operands: Vec<TensorData>,
}

/// What running a stage produced.
#[derive(Debug, Default)]
pub(in crate::server) struct StageRun {
    pub results: Vec<TensorData>,
    pub start: Micros,
    pub end: Micros,
    pub steps: Vec<StepTime>,
    /// Peak memory of the engine beyond parameters: intermediate tensors, results, copies of operands, workspace.
    pub peak: Bytes,
    /// As in [`StageTime`](crate::protocol::inference_trace::StageTime).
    pub engine: SmolStr,
    pub fallbacks: u32,
}

/// An event that contradicts the setup or the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunStateError {
    #[error("inference {inference} is not in flight: expected {from} to {to}")]
    NotInFlight { inference: u64, from: u64, to: u64 },
    #[error("inference {inference} is of sequence {sequence}: expected one of {sequences}")]
    NoSequence { inference: u64, sequence: u32, sequences: u32 },
    #[error("inference {inference} is of sequence {sequence}, as another in flight is")]
    SequenceInFlight { inference: u64, sequence: u32 },
    #[error("inference {inference} is too many: {most} are in flight")]
    TooMany { inference: u64, most: u32 },
    #[error("inference {0} began in another phase")]
    OtherPhase(u64),
    #[error("value {0} is not expected from another server")]
    UnexpectedValue(u32),
    #[error("value {0} arrived twice for the same inference")]
    DuplicateValue(u32),
    #[error("value {0} continues a sequence, and none has begun")]
    NoState(u32),
    #[error("value {value} has {found}, expected {expected}")]
    SizeMismatch { value: u32, found: Bytes, expected: Bytes },
    /// `device` is `None` for tensors in no partition's memory.
    #[error("{} cannot hold another tensor of {size}: {shortfall} more than the limit", holder(.device.as_ref()))]
    Memory { device: Option<SmolStr>, size: Bytes, shortfall: Bytes },
}

fn holder(device: Option<&SmolStr>) -> String {
    device.map_or("the agent".to_string(), |device| format!("device {device}"))
}
