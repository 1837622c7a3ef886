//! The client's ends of a run on one agent.

use tokio::sync::mpsc;

use super::error::AgentError;
use crate::protocol::run::{RunCommand, RunEvent};

/// The sending end of a run's events.
pub(super) type EventSender = mpsc::Sender<Result<RunEvent, AgentError>>;

/// A run on one agent. Dropping either end unloads it there.
pub struct RunHandle {
    pub commands: mpsc::Sender<RunCommand>,
    /// Ends with an error if the run fails.
    pub events: mpsc::Receiver<Result<RunEvent, AgentError>>,
}
