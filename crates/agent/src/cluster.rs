//! The contents of a cluster file: servers, given link costs, source and sink, TLS files.

use std::{fmt, path::PathBuf};

use smol_str::SmolStr;

use crate::link::Link;
use edgecut_engine::{EngineChoice, EngineOptions};
use edgecut_graph::units::{Bytes, Micros};

/// Upper limit on the threads of a device.
pub const MAX_THREADS: u32 = 1024;

/// The servers over which a model may be distributed.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// At least one; names are unique.
    pub servers: Vec<Server>,
    /// Links with a given cost, one per direction.
    pub links: Vec<Link>,
    /// The server that provides the inputs.
    pub source: SmolStr,
    /// The server that receives the results.
    pub sink: SmolStr,
    /// Certificates for connections to the agents.
    pub tls: Option<TlsFiles>,
    /// How long to wait for devices that others use; by default as their agents say.
    pub wait: Option<Micros>,
}

/// A machine that runs one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    pub name: SmolStr,
    pub endpoint: Endpoint,
    /// Memory limit of each device, instead of what the server reports.
    pub memory: Option<Bytes>,
    /// Threads to compute with, instead of what the server reports.
    pub threads: Option<u32>,
    /// The engine of its CPU, instead of the agent's own.
    pub engine: Option<EngineChoice>,
    /// How the engines of an embedded agent are found.
    pub embedded: EngineOptions,
    /// Limits of single devices.
    pub devices: Vec<DeviceOverride>,
}

/// Where a server's agent runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Endpoint {
    /// In this process, without a socket.
    Embedded,
    /// In another process at `host:port`; `tls_name` is the name in its certificate, where that is not the host.
    Remote { address: String, tls_name: Option<String> },
}

/// Limits of one device of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceOverride {
    pub name: SmolStr,
    pub memory: Option<Bytes>,
    pub threads: Option<u32>,
}

/// PEM files of one party of a mutual TLS connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority of the other side's certificate.
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Revoked certificates (PEM, X.509 CRL).
    pub crl: Option<PathBuf>,
}

impl Cluster {
    /// This machine alone, with an embedded agent.
    pub fn embedded() -> Cluster {
        let name = SmolStr::new_static("local");
        let server = Server {
            name: name.clone(),
            endpoint: Endpoint::Embedded,
            memory: None,
            threads: None,
            engine: None,
            embedded: EngineOptions::default(),
            devices: Vec::new(),
        };
        Cluster { servers: vec![server], links: Vec::new(), source: name.clone(), sink: name, tls: None, wait: None }
    }

    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// The given link from one server to another.
    pub fn link(&self, from: &str, to: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.from == from && link.to == to)
    }
}

impl Server {
    /// Threads to compute with on `device`, if given.
    pub fn threads_for(&self, device: &str) -> Option<u32> {
        self.device(device).and_then(|d| d.threads).or(self.threads)
    }

    /// Memory limit of `device`, if given.
    pub fn memory_for(&self, device: &str) -> Option<Bytes> {
        self.device(device).and_then(|d| d.memory).or(self.memory)
    }

    fn device(&self, name: &str) -> Option<&DeviceOverride> {
        self.devices.iter().find(|device| device.name == name)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Embedded => f.pad("embedded"),
            Endpoint::Remote { address, .. } => f.pad(address),
        }
    }
}
