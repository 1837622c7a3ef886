//! The client of agents: [`Agent`] is one, embedded in this process ([`Host`](super::server::Host)) or in another one
//! (`remote`); [`Fleet`] is all agents of a cluster.

mod agent;
mod discover;
mod error;
mod fleet;
mod probe_fit;
mod remote;
mod run_handle;
mod server_certificate;

pub use agent::Agent;
pub use discover::DiscoveryError;
pub use error::AgentError;
pub use fleet::{Fleet, FleetMember};
pub use run_handle::RunHandle;
pub use server_certificate::ServerCertificate;
