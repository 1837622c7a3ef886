//! The agent: what runs on every server of a cluster, and how it is spoken to.
//!
//! [`Host`] is the agent itself: this machine's devices, each with a thread that computes, and the runs that are
//! loaded. [`serve`] puts it on a socket (tonic, `proto/edgecut.proto`); [`Agent`] is its user's side, which calls
//! an embedded host directly and another process over the network, with the same methods. A run is one
//! conversation ([`message`]): its setup comes first, everything stays loaded as long as it lasts, and nothing after.
//! Tensors go from agent to agent, never through the client.
//!
//! Every call has a deadline, and every error names the agent it is about.

mod board;
mod chunks;
mod client;
pub mod clock;
mod connect;
mod describe;
mod device;
mod drive;
mod error;
mod execute;
pub mod fleet;
mod fractions;
mod host;
pub mod measured;
pub mod message;
pub mod probe;
mod profiling;
mod remote;
mod security;
mod serve;
mod service;
mod session;
pub mod setup;
pub mod share;
mod shutdown;
pub mod survey;
pub mod task;
mod transfer;
pub mod turns;
mod wire;

pub use client::{Agent, RunHandle};
pub use error::{AgentError, HostError};
pub use host::{Host, HostOptions};
pub use security::{Identity, SecurityError, check_address};
pub use serve::serve;
pub use shutdown::Shutdown;
