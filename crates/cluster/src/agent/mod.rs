//! The agent: a service on every server of a cluster that describes, profiles and runs; and its client.
//!
//! | module | contents |
//! |---|---|
//! | [`protocol`] | messages and their typed forms, chunks, connections |
//! | [`server`] | the agent: devices, sessions, runs, profiles, probes; [`serve`] puts it on a socket |
//! | [`client`] | [`Agent`], embedded or remote with the same methods, and the [`Fleet`] of a cluster |
//! | [`clock`], [`shutdown`], [`io_priority`] | shared by both sides |
//! | [`supervisor`] | the process that holds the sockets, and starts the one that serves again when it was killed |
//! | [`work_log`] | what each device computes, kept where that process is killed |
//! | [`log_queue`] | log lines on their way to a stderr that may be full or closed |
//! | [`limits`] | what clients can make an agent do at most |
//!
//! A run is one bidirectional stream: the setup comes first, and everything is unloaded when the stream ends. Tensors go
//! from agent to agent, never through the client. Every call has a timeout, and every error names its agent.
//! Nothing here knows plans or profiles' files.

mod client;
pub(crate) mod clock;
pub mod io_priority;
mod limits;
mod log_queue;
pub mod protocol;
mod server;
mod shutdown;
#[cfg(target_os = "linux")]
mod supervisor;
mod work_log;

pub use client::{Agent, AgentError, DiscoveryError, Fleet, FleetMember, RunHandle, ServerCertificate};
pub use limits::{LimitError, Limits, MAX_TIME, descriptors};
pub use log_queue::LogQueue;
pub use protocol::{Identity, MemoryShortfall, SecurityError, check_address};
pub use server::{Host, HostError, HostOptions, ServeError, receive_recorded, serve, serve_metrics, total_memory};
pub use shutdown::Shutdown;
#[cfg(target_os = "linux")]
pub use supervisor::{Supervisor, SupervisorError, Worker, limit_memory};
pub use work_log::WorkLog;
