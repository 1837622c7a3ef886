//! Edge clusters and their agents: the cluster file, the service on every server, its client, and what runs measured.
//!
//! | module | contents |
//! |---|---|
//! | [`Cluster`], [`ClusterError`] | the cluster file (TOML): servers, given links, source and sink |
//! | [`Description`] | what a server reports of its hardware |
//! | [`Inventory`] | the devices and links that a plan can use |
//! | [`Link`], [`LinkTable`] | a directed connection and its cost; the file of measured links |
//! | [`authority`] | certificates for agents and operators |
//! | [`mdns`] | agents on the local network |
//! | [`protocol`] | messages and their typed forms, chunks, connections |
//! | [`server`] | the agent: devices, sessions, runs, profiles, probes; [`serve`](server::serve) puts it on a socket |
//! | [`client`] | [`Agent`](client::Agent), embedded or remote with the same methods, and the [`Fleet`](client::Fleet) of a cluster |
//! | [`deployment`] | what each server must do in a run |
//! | [`results`] | what runs measured, as values and as files |
//! | [`clock`], [`Shutdown`] | shared by server and client |
//! | [`io_priority`] | the priority of threads that send and receive, which `edgecut-session` raises |
//! | [`Supervisor`] | the process that holds the sockets, and starts the one that serves again when it was killed |
//! | [`WorkLog`] | what each device computes, kept where that process is killed |
//! | [`LogQueue`] | log lines on their way to a stderr that may be full or closed |
//! | [`Limits`] | what clients can make an agent do at most |
//!
//! A run is one bidirectional stream: the setup comes first, and everything is unloaded when the stream ends. Tensors go
//! from agent to agent, never through the client. Every call has a timeout, and every error names its agent.
//!
//! Dependencies: `server`, `client` and `results` on `protocol`, `client` on `server` for embedded agents, all of them on the
//! data types; never in reverse. Nothing here plans, deploys or drives a run: that is `edgecut-session`.

mod added_servers;
pub mod authority;
pub mod client;
pub mod clock;
mod cluster;
mod cluster_file;
pub mod deployment;
mod description;
mod discovery;
mod inventory;
pub mod io_priority;
mod limits;
mod link;
mod link_table;
mod log_queue;
pub mod mdns;
pub mod nearest;
mod oversubscribed;
mod printable;
pub mod protocol;
pub mod results;
pub mod server;
mod shutdown;
#[cfg(target_os = "linux")]
mod supervisor;
mod work_log;

pub use added_servers::AddedServers;
pub use cluster::{Cluster, DeviceOverride, Endpoint, MAX_THREADS, Server, TlsFiles};
pub use cluster_file::ClusterError;
pub use description::{
    Cache, CpuDescription, Description, DeviceDescription, DeviceKind, EnergyMetering, engine_choice,
};
pub use discovery::Discovery;
pub use inventory::{DeviceSpec, Inventory};
pub use limits::{LimitError, Limits, MAX_TIME, descriptors};
pub use link::{HostLink, Link};
pub use link_table::{LinkRow, LinkTable};
pub use log_queue::LogQueue;
pub use oversubscribed::Oversubscribed;
pub use shutdown::Shutdown;
#[cfg(target_os = "linux")]
pub use supervisor::{Supervisor, SupervisorError, Worker, limit_memory};
pub use work_log::WorkLog;
