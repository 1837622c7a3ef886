//! Clusters of edge servers: their description, the agents that run on them, and plans executed on the agents.
//!
//! | module | contents |
//! |---|---|
//! | [`Cluster`], [`ClusterError`] | the cluster file (TOML): servers, given links, source and sink |
//! | [`Description`], [`Inventory`] | what a server reports; the devices and links that a plan can use |
//! | [`Link`], [`LinkTable`] | a directed connection and its cost; the file of measured links |
//! | [`authority`] | certificates for agents and operators |
//! | [`mdns`] | agents on the local network |
//! | [`agent`] | the service on every server, its protocol and its client |
//! | [`survey`](mod@survey) | the profile of a model on all devices |
//! | [`run`] | plans deployed and executed on agents |
//! | [`calibration`] | what runs take beyond profiles, learnt once for a device |
//!
//! Dependencies: `calibration` on `run` and `survey`; `run` on `survey` and `agent`; `survey` on `agent`; `agent` on the data types; never in reverse. Nothing
//! here searches for plans: that is `edgecut-plan`, without sockets.

mod added_servers;
pub mod agent;
pub mod authority;
pub mod calibration;
mod cluster;
mod cluster_file;
mod discovery;
mod inventory;
mod link;
mod link_table;
pub mod mdns;
pub mod nearest;
mod oversubscribed;
mod printable;
pub mod run;
pub mod survey;

pub use added_servers::AddedServers;
pub use cluster::{Cluster, DeviceOverride, Endpoint, MAX_THREADS, Server, TlsFiles};
pub use cluster_file::ClusterError;
pub use discovery::Discovery;
pub use inventory::{
    Cache, CpuDescription, Description, DeviceDescription, DeviceKind, DeviceSpec, EnergyMetering, Inventory,
    engine_choice,
};
pub use link::{HostLink, Link};
pub use link_table::{LinkRow, LinkTable};
pub use oversubscribed::Oversubscribed;
pub use printable::printable;
