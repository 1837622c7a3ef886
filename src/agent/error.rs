//! What goes wrong on an agent ([`HostError`]), and what its client tells of it ([`AgentError`]).

use std::time::Duration;

use smol_str::SmolStr;
use tonic::{
    Code, Status,
    metadata::{MetadataMap, MetadataValue},
};

use super::{board::BoardError, chunks::ChunkError, setup::SetupError};
use crate::{engine::EngineError, units::Bytes};

/// Marks a status as an agent's own answer; one without it was made up by the transport.
const REFUSAL: &str = "edgecut-refusal";

/// Messages travel in HTTP/2 headers, whose size is limited.
const LONGEST_MESSAGE: usize = 4000;

/// Why an agent did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(
        "device {device} cannot hold the partition: it needs {need} (parameters {parameters}), the limit is {limit}: \
         {shortfall} short"
    )]
    Memory { device: SmolStr, need: Bytes, parameters: Bytes, limit: Bytes, shortfall: Bytes },
    #[error("device {device} took {peak} of memory, the limit is {limit}: {shortfall} over")]
    OverLimit { device: SmolStr, peak: Bytes, limit: Bytes, shortfall: Bytes },
    #[error("device {device} is busy with {with}")]
    Busy { device: SmolStr, with: String },
    #[error("there is no device {device}: this server has {known}")]
    NoDevice { device: SmolStr, known: String },
    #[error("{what}: {cause}")]
    Engine { what: String, cause: EngineError },
    #[error("{what}: the engine panicked: {message}")]
    Panic { what: String, message: String },
    #[error("the link to {peer} failed: {cause}")]
    Link { peer: SmolStr, cause: String },
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Board(#[from] BoardError),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error("{0}")]
    Request(String),
    #[error("the agent is shutting down")]
    ShuttingDown,
    #[error("the client went away")]
    Abandoned,
}

impl From<HostError> for Status {
    fn from(error: HostError) -> Status {
        let code = match &error {
            HostError::Memory { .. } | HostError::OverLimit { .. } => Code::ResourceExhausted,
            HostError::Busy { .. } | HostError::ShuttingDown => Code::Unavailable,
            HostError::NoDevice { .. } => Code::NotFound,
            HostError::Engine { .. } | HostError::Panic { .. } => Code::Internal,
            HostError::Link { .. } => Code::Aborted,
            HostError::Setup(_) | HostError::Board(_) | HostError::Chunk(_) | HostError::Request(_) => {
                Code::InvalidArgument
            }
            HostError::Abandoned => Code::Cancelled,
        };
        let mut message = error.to_string();
        if message.len() > LONGEST_MESSAGE {
            message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
            message.push_str(" …");
        }
        let mut metadata = MetadataMap::new();
        metadata.insert(REFUSAL, MetadataValue::from_static("1"));
        Status::with_metadata(code, message, metadata)
    }
}

/// Why an agent did not serve its client. Every message names the agent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    #[error("agent {agent} at {address} does not answer: {cause}")]
    Absent { agent: SmolStr, address: String, cause: String },
    #[error("agent {agent} speaks protocol {found}, this program {expected}: use the same version of edgecut on both")]
    Protocol { agent: SmolStr, found: u32, expected: u32 },
    #[error("agent {agent} was lost while {doing}: {cause}")]
    Lost { agent: SmolStr, doing: String, cause: String },
    #[error("agent {agent} did not answer within {} s while {doing}", .after.as_secs_f64())]
    Late { agent: SmolStr, doing: String, after: Duration },
    #[error("agent {agent}: {message}")]
    Refused { agent: SmolStr, message: String },
    /// A partition needs more memory than it may have, or a run took more.
    #[error("agent {agent}: {message}")]
    Memory { agent: SmolStr, message: String },
    /// Another agent that it works with failed it.
    #[error("agent {agent}: {message}")]
    Peer { agent: SmolStr, message: String },
}

impl AgentError {
    /// What ended a call to `agent`: its own refusal, or the loss of the connection.
    pub fn from_status(agent: &SmolStr, doing: &str, status: &Status) -> AgentError {
        let agent = agent.clone();
        if status.metadata().contains_key(REFUSAL) {
            let message = status.message().to_string();
            return match status.code() {
                Code::ResourceExhausted => AgentError::Memory { agent, message },
                Code::Aborted => AgentError::Peer { agent, message },
                _ => AgentError::Refused { agent, message },
            };
        }
        let cause = std::error::Error::source(status).map_or(status.message().to_string(), cause);
        AgentError::Lost { agent, doing: doing.to_string(), cause }
    }

    /// What an embedded agent says of its own error.
    pub fn from_host(agent: SmolStr, error: &HostError) -> AgentError {
        let message = error.to_string();
        match error {
            HostError::Memory { .. } | HostError::OverLimit { .. } => AgentError::Memory { agent, message },
            HostError::Link { .. } => AgentError::Peer { agent, message },
            _ => AgentError::Refused { agent, message },
        }
    }

    pub fn agent(&self) -> &SmolStr {
        match self {
            AgentError::Absent { agent, .. }
            | AgentError::Protocol { agent, .. }
            | AgentError::Lost { agent, .. }
            | AgentError::Late { agent, .. }
            | AgentError::Refused { agent, .. }
            | AgentError::Memory { agent, .. }
            | AgentError::Peer { agent, .. } => agent,
        }
    }

    /// How near to the cause an error is likely to be, the lowest first: an agent that is gone explains the complaints
    /// of all others, and an agent's own trouble those of its peers.
    pub fn distance(&self) -> u8 {
        match self {
            AgentError::Absent { .. } | AgentError::Lost { .. } | AgentError::Late { .. } => 0,
            AgentError::Protocol { .. } | AgentError::Refused { .. } | AgentError::Memory { .. } => 1,
            AgentError::Peer { .. } => 2,
        }
    }
}

/// The innermost cause of a failed connection or call, which says most: `connection refused`, not `transport error`.
pub fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    let text = innermost.to_string();
    // rustls explains at length, with a link, what a process that was killed could not say.
    if text.contains("close_notify") { "the connection was cut".to_string() } else { text }
}
