//! Errors of an agent, and the gRPC status that reports them to the client.

use std::time::Duration;

use smol_str::SmolStr;
use tonic::{
    Code, Status,
    metadata::{MetadataMap, MetadataValue},
};

use super::run_state::RunStateError;
use crate::protocol::{
    chunks::ChunkError,
    error::{MemoryShortfall, MessageError, REFUSAL, SHORTFALL},
    role::Role,
};
use edgecut_engine::EngineError;
use edgecut_graph::units::{Bytes, counted};

/// Status messages travel in HTTP/2 headers, whose size is limited.
const MAX_STATUS_LENGTH: usize = 4000;

/// Why an agent did not serve a request.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(
        "device {device} cannot hold the partition: it needs {need} (parameters {parameters}), the limit is {limit}: \
         {shortfall} short"
    )]
    Memory { device: SmolStr, need: Bytes, parameters: Bytes, limit: Bytes, shortfall: Bytes },
    #[error(
        "device {device} cannot load the partition: `{tensor}` takes {need} while it is loaded, the limit is {limit}: \
         {shortfall} short"
    )]
    Loading { device: SmolStr, tensor: SmolStr, need: Bytes, limit: Bytes, shortfall: Bytes },
    #[error("device {device} used {peak} of memory, the limit is {limit}: {shortfall} over")]
    OverLimit { device: SmolStr, peak: Bytes, limit: Bytes, shortfall: Bytes },
    #[error("device {device} is lost until the agent starts again: {why}")]
    Lost { device: SmolStr, why: String },
    #[error("device {device} is busy with {user}")]
    Busy { device: SmolStr, user: String },
    #[error(
        "device {device} computes with at most {}, {threads} were asked for: start its agent with more threads",
        counted(*.offered as usize, "thread")
    )]
    Threads { device: SmolStr, threads: u32, offered: u32 },
    #[error("no device {device}: this server has {known}")]
    NoDevice { device: SmolStr, known: String },
    #[error("{what}: {cause}")]
    Engine { what: String, cause: EngineError },
    #[error("{what}: the engine panicked: {message}")]
    Panic { what: String, message: String },
    #[error("the link to {peer} failed: {cause}")]
    Link { peer: SmolStr, cause: String },
    #[error("the link to {peer} failed: it has ended the run")]
    PeerEnded { peer: SmolStr },
    #[error(transparent)]
    BadRequest(#[from] MessageError),
    #[error(transparent)]
    RunState(#[from] RunStateError),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error("{0}")]
    Request(String),
    #[error("the agent serves {limit} requests of {who} already, which is the limit: try again later")]
    Jobs { limit: usize, who: &'static str },
    #[error(
        "data from clients would take {held} on the agent (documents count 16 times their size), the limit is {limit}"
    )]
    Received { held: Bytes, limit: Bytes },
    #[error("no message from the client for {} s", .0.as_secs_f64())]
    Silent(Duration),
    #[error("the agent is shutting down")]
    ShuttingDown,
    #[error("the connection has no certificate")]
    NoCertificate,
    #[error("the certificate of `{name}` has {is}, only that of {needed} may do this: see `edgecut cluster init`")]
    Role { name: SmolStr, is: String, needed: Role },
    #[error("the certificate of `{name}` is revoked")]
    Revoked { name: SmolStr },
    #[error("the certificate of `{name}` is not that of the peer it says it is")]
    NotAPeer { name: SmolStr },
    #[error("the client closed the connection")]
    ClientGone,
}

impl HostError {
    /// Whether there is too little memory for a part of a run.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(
            self,
            HostError::Memory { .. }
                | HostError::Loading { .. }
                | HostError::OverLimit { .. }
                | HostError::RunState(RunStateError::Memory { .. })
        )
    }

    /// The shortfall, if it is that of one device.
    pub(crate) fn shortfall(&self) -> Option<MemoryShortfall> {
        let (device, bytes) = match self {
            HostError::Memory { device, shortfall, .. }
            | HostError::Loading { device, shortfall, .. }
            | HostError::OverLimit { device, shortfall, .. } => (device, shortfall),
            HostError::RunState(RunStateError::Memory { device: Some(device), shortfall, .. }) => (device, shortfall),
            _ => return None,
        };
        Some(MemoryShortfall { device: device.clone(), bytes: *bytes })
    }
}

impl From<HostError> for Status {
    fn from(error: HostError) -> Status {
        let code = match &error {
            error if error.is_of_memory() => Code::ResourceExhausted,
            HostError::Busy { .. } | HostError::Jobs { .. } | HostError::Received { .. } | HostError::ShuttingDown => {
                Code::Unavailable
            }
            HostError::NoDevice { .. } => Code::NotFound,
            HostError::Engine { .. } | HostError::Panic { .. } | HostError::Lost { .. } => Code::Internal,
            HostError::Link { .. } | HostError::PeerEnded { .. } => Code::Aborted,
            HostError::Memory { .. }
            | HostError::Loading { .. }
            | HostError::OverLimit { .. }
            | HostError::Threads { .. }
            | HostError::BadRequest(_)
            | HostError::RunState(_)
            | HostError::Chunk(_)
            | HostError::Request(_) => Code::InvalidArgument,
            HostError::NoCertificate
            | HostError::Role { .. }
            | HostError::Revoked { .. }
            | HostError::NotAPeer { .. } => Code::PermissionDenied,
            HostError::Silent(_) => Code::DeadlineExceeded,
            HostError::ClientGone => Code::Cancelled,
        };
        let mut message = error.to_string();
        if message.len() > MAX_STATUS_LENGTH {
            message.truncate(message.floor_char_boundary(MAX_STATUS_LENGTH));
            message.push_str(" …");
        }
        let mut metadata = MetadataMap::new();
        metadata.insert(REFUSAL, MetadataValue::from_static("1"));
        if let Some(shortfall) = error.shortfall().and_then(|shortfall| shortfall.to_string().parse().ok()) {
            metadata.insert(SHORTFALL, shortfall);
        }
        Status::with_metadata(code, message, metadata)
    }
}
