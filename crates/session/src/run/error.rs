//! Why a run did not complete.

use std::time::Duration;

use smol_str::SmolStr;

use edgecut_agent::{client::AgentError, protocol::MemoryShortfall, results::record::Record};

/// Maximum number of warm-up runs that an agent may request.
pub(super) const MAX_WARM_UPS: u64 = 64;

/// Why a run did not complete.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("no agent for server {0}")]
    NoAgent(SmolStr),
    #[error("still waiting for {waiting} after {} s", .after.as_secs())]
    Stuck { waiting: String, after: Duration },
    #[error("run {inference} gave other outputs than the first one")]
    Different { inference: u64 },
    /// The runs ended early, after some counted runs were finished.
    #[error("{cause}; {} of {wanted} runs were finished", .finished.latencies.len())]
    Interrupted { cause: Box<RunError>, finished: Box<Record>, wanted: u64 },
    #[error("it was stopped before a run that counts was finished")]
    Stopped,
    #[error("the plan is not loaded any more, as an earlier run failed or was cancelled: deploy it again")]
    Unloaded,
    #[error("agent {agent} asks for {runs} warm-up runs; at most {} are made", MAX_WARM_UPS)]
    WarmUps { agent: SmolStr, runs: u64 },
}

impl RunError {
    /// Whether an agent failed or was lost. Another run may then succeed or fail.
    pub(crate) fn is_of_agent(&self) -> bool {
        match self {
            RunError::Agent(AgentError::Memory { .. }) => false,
            RunError::Agent(_) | RunError::NoAgent(_) | RunError::Stuck { .. } => true,
            RunError::Interrupted { cause, .. } => cause.is_of_agent(),
            RunError::Different { .. } | RunError::WarmUps { .. } | RunError::Stopped | RunError::Unloaded => false,
        }
    }

    /// The agent that failed or was lost, if one did.
    pub fn agent(&self) -> Option<&SmolStr> {
        match self {
            RunError::Agent(error) => Some(error.agent()),
            RunError::NoAgent(server) => Some(server),
            RunError::Interrupted { cause, .. } => cause.agent(),
            RunError::Stuck { .. }
            | RunError::Different { .. }
            | RunError::WarmUps { .. }
            | RunError::Stopped
            | RunError::Unloaded => None,
        }
    }

    /// The agent that has too little memory for its partitions, its message, and what it lacks, if that is the cause.
    pub fn memory(&self) -> Option<(&SmolStr, &str, Option<&MemoryShortfall>)> {
        match self {
            RunError::Agent(AgentError::Memory { agent, message, shortfall }) => {
                Some((agent, message, shortfall.as_ref()))
            }
            RunError::Interrupted { cause, .. } => cause.memory(),
            _ => None,
        }
    }
}
