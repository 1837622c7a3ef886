//! Why a call to an agent failed.

use std::time::Duration;

use smol_str::SmolStr;
use tonic::{Code, Status};

use crate::{
    printable::printable,
    protocol::{
        MemoryShortfall,
        error::{REFUSAL, SHORTFALL, root_cause},
        peer::PeerError,
    },
    server::HostError,
};

/// Why a call to an agent failed. Every message names the agent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    #[error("agent {agent} at {address} does not answer: {cause}")]
    Unreachable { agent: SmolStr, address: String, cause: String },
    #[error("agent {agent} is not what answers at {address}: {cause}")]
    NotThePeer { agent: SmolStr, address: String, cause: PeerError },
    #[error(
        "agent {agent} speaks protocol {found}, this program {expected}, and they may differ by one: use the same version of edgecut on both"
    )]
    ProtocolVersion { agent: SmolStr, found: u32, expected: u32 },
    /// Versions before 12 have another gRPC service.
    #[error("agent {agent} speaks a protocol that this program does not know: use the same version of edgecut on both")]
    UnknownProtocol { agent: SmolStr },
    #[error("agent {agent} was lost while {doing}: {cause}")]
    Disconnected { agent: SmolStr, doing: String, cause: String },
    #[error("agent {agent} did not answer within {} s while {doing}", .after.as_secs_f64())]
    Timeout { agent: SmolStr, doing: String, after: Duration },
    #[error("agent {agent}: {message}")]
    Refused { agent: SmolStr, message: String },
    /// Others use a device, or as much as the agent serves.
    #[error("agent {agent}: {message}")]
    Busy { agent: SmolStr, message: String },
    /// A partition needs, or used, more memory than its limit.
    #[error("agent {agent}: {message}")]
    Memory { agent: SmolStr, message: String, shortfall: Option<MemoryShortfall> },
    /// A link to another agent failed.
    #[error("agent {agent}: {message}")]
    Peer { agent: SmolStr, message: String },
}

impl AgentError {
    /// The error for a failed gRPC call: the agent's refusal, or a lost connection.
    pub(crate) fn from_status(agent: &SmolStr, doing: &str, status: &Status) -> AgentError {
        let agent = agent.clone();
        if status.code() == Code::Unimplemented {
            return AgentError::UnknownProtocol { agent };
        }
        if status.metadata().contains_key(REFUSAL) {
            let message = printable(status.message()).into_owned();
            let shortfall = status.metadata().get(SHORTFALL).and_then(|text| text.to_str().ok());
            return match status.code() {
                Code::ResourceExhausted => {
                    AgentError::Memory { agent, message, shortfall: shortfall.and_then(MemoryShortfall::parse) }
                }
                Code::Aborted => AgentError::Peer { agent, message },
                Code::Unavailable => AgentError::Busy { agent, message },
                _ => AgentError::Refused { agent, message },
            };
        }
        // What the agent sent is no message of this protocol.
        if status.code() == Code::InvalidArgument {
            return AgentError::Refused { agent, message: printable(status.message()).into_owned() };
        }
        let cause = std::error::Error::source(status).map_or(status.message().to_string(), root_cause);
        AgentError::Disconnected { agent, doing: doing.to_string(), cause: printable(&cause).into_owned() }
    }

    /// The error for a failed call to an embedded agent.
    pub(crate) fn from_host(agent: SmolStr, error: &HostError) -> AgentError {
        let message = error.to_string();
        match error {
            error if error.is_of_memory() => AgentError::Memory { agent, message, shortfall: error.shortfall() },
            HostError::Link { .. } => AgentError::Peer { agent, message },
            HostError::Busy { .. } => AgentError::Busy { agent, message },
            _ => AgentError::Refused { agent, message },
        }
    }

    pub fn agent(&self) -> &SmolStr {
        match self {
            AgentError::Unreachable { agent, .. }
            | AgentError::NotThePeer { agent, .. }
            | AgentError::ProtocolVersion { agent, .. }
            | AgentError::UnknownProtocol { agent }
            | AgentError::Disconnected { agent, .. }
            | AgentError::Timeout { agent, .. }
            | AgentError::Refused { agent, .. }
            | AgentError::Busy { agent, .. }
            | AgentError::Memory { agent, .. }
            | AgentError::Peer { agent, .. } => agent,
        }
    }

    /// Rank by likely causality, the lowest first, when several agents report errors: a lost agent explains all others'
    /// errors, and an agent's own error those of its peers.
    pub fn causal_rank(&self) -> u8 {
        match self {
            AgentError::Unreachable { .. }
            | AgentError::NotThePeer { .. }
            | AgentError::Disconnected { .. }
            | AgentError::Timeout { .. } => 0,
            AgentError::ProtocolVersion { .. }
            | AgentError::UnknownProtocol { .. }
            | AgentError::Refused { .. }
            | AgentError::Busy { .. }
            | AgentError::Memory { .. } => 1,
            AgentError::Peer { .. } => 2,
        }
    }
}
