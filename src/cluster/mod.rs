//! The cluster: which servers there are, what each offers, and the links between them.
//!
//! [`file`] is what a person writes (TOML), [`Description`] is what a server answers, [`Link`] what was
//! measured or given between two servers; [`Inventory`] is the three put together, which the planner's
//! tables are made of. Plain data: knows no socket and no engine.

pub mod file;
mod inventory;
mod link;
mod link_table;

use std::{fmt, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::units::Bytes;

pub use file::ClusterError;
pub use inventory::{Cache, CpuDescription, Description, DeviceDescription, DeviceKind, DeviceSpec, Inventory};
pub use link::{FitError, HostLink, Link, LinkCost};
pub use link_table::{LinkRow, LinkTable};

/// A device that computes with more threads than this is a mistake.
pub const MOST_THREADS: u32 = 1024;

/// The servers that a model may be spread over, as the cluster file has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// At least one; names are unique.
    pub servers: Vec<Server>,
    /// Links whose cost is given rather than measured, each direction of its own.
    pub links: Vec<Link>,
    /// The server at which inputs start.
    pub source: SmolStr,
    /// The server at which results must arrive.
    pub sink: SmolStr,
    /// How this side proves itself to the agents, and knows them.
    pub tls: Option<TlsFiles>,
}

/// A machine that runs one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    pub name: SmolStr,
    pub place: Place,
    /// The memory to plan with on each device, instead of what the server reports.
    pub memory: Option<Bytes>,
    /// The threads to compute with, instead of what the server reports.
    pub threads: Option<u32>,
    /// Overrides for single devices, by the device's name.
    pub devices: Vec<DeviceOverride>,
}

/// Where a server's agent runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    /// In this process: no socket, nothing to start.
    Embedded,
    /// Behind an address `host:port`; `tls_name` is the name in its certificate where that is not the host.
    Remote { address: String, tls_name: Option<String> },
}

/// What the cluster file says of one device of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceOverride {
    pub name: SmolStr,
    pub memory: Option<Bytes>,
    pub threads: Option<u32>,
}

/// PEM files of one party of a mutual TLS connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority that signed the other side's certificate.
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// A device by its server and its name there; displays as `server/device`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DeviceName {
    pub server: SmolStr,
    pub device: SmolStr,
}

/// Text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a device: expected `server/device`, such as `local/cpu`")]
pub struct DeviceNameError(String);

impl Cluster {
    /// This machine alone, its agent in this process.
    pub fn embedded() -> Cluster {
        let name = SmolStr::new_static("local");
        let server =
            Server { name: name.clone(), place: Place::Embedded, memory: None, threads: None, devices: Vec::new() };
        Cluster { servers: vec![server], links: Vec::new(), source: name.clone(), sink: name, tls: None }
    }

    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The cost that the file gives for one direction between two servers.
    pub fn link(&self, from: &str, to: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.from == from && link.to == to)
    }
}

impl Server {
    /// The threads to compute with on `device`, if the file says so.
    pub fn threads_for(&self, device: &str) -> Option<u32> {
        self.device(device).and_then(|d| d.threads).or(self.threads)
    }

    /// The memory to plan with on `device`, if the file says so.
    pub fn memory_for(&self, device: &str) -> Option<Bytes> {
        self.device(device).and_then(|d| d.memory).or(self.memory)
    }

    fn device(&self, name: &str) -> Option<&DeviceOverride> {
        self.devices.iter().find(|device| device.name == name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Embedded => f.pad("embedded"),
            Place::Remote { address, .. } => f.pad(address),
        }
    }
}

impl DeviceName {
    pub fn new(server: impl Into<SmolStr>, device: impl Into<SmolStr>) -> DeviceName {
        DeviceName { server: server.into(), device: device.into() }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.server, self.device))
    }
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;
    fn from_str(text: &str) -> Result<DeviceName, DeviceNameError> {
        match text.split_once('/') {
            Some((server, device)) if !server.is_empty() && !device.is_empty() => Ok(DeviceName::new(server, device)),
            _ => Err(DeviceNameError(text.to_string())),
        }
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> String {
        name.to_string()
    }
}

impl TryFrom<String> for DeviceName {
    type Error = DeviceNameError;
    fn try_from(text: String) -> Result<DeviceName, DeviceNameError> {
        text.parse()
    }
}
