//! What servers offer: hardware as each reports it, and the devices and links of a whole cluster that a plan
//! can be made for.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{Cluster, DeviceName, HostLink, Link};
use crate::units::Bytes;

/// What a server reports of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The name the agent was started with.
    pub name: SmolStr,
    /// edgecut's version there.
    pub version: String,
    /// Operating system and its version.
    pub system: String,
    pub cpu: CpuDescription,
    /// Main memory of the machine, and what of it is free now.
    pub memory_total: Bytes,
    pub memory_available: Bytes,
    pub devices: Vec<DeviceDescription>,
    /// What a person should know of the devices: why there is no GPU.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The processor of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuDescription {
    pub model: String,
    /// Cores, and hardware threads that this process may use.
    pub cores: u32,
    pub threads: u32,
    pub architecture: String,
    pub caches: Vec<Cache>,
}

/// One level of cache as one core sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// `L1d`, `L2`, `L3`.
    pub name: SmolStr,
    pub size: Bytes,
}

/// Something on a server that executes operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Unique on its server: `cpu`, `gpu0`.
    pub name: SmolStr,
    pub kind: DeviceKind,
    /// The model of the hardware.
    pub model: String,
    /// Name and version of what executes operators on it.
    pub engine: String,
    /// Threads it computes with; of a GPU, its multiprocessors.
    pub threads: u32,
    /// What parameters, activations and workspace together may take.
    pub memory: Bytes,
    /// What tensors take to a device with memory of its own; `None` if it computes in main memory.
    #[serde(default)]
    pub host_link: Option<HostLink>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    Cpu,
    Gpu,
}

/// A device of the cluster with the limits that a plan must keep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceSpec {
    pub name: DeviceName,
    pub kind: DeviceKind,
    /// The model of the hardware, and how many cores its server has.
    pub hardware: String,
    pub engine: String,
    pub threads: u32,
    pub memory: Bytes,
    pub host_link: Option<HostLink>,
}

/// The devices of all servers that answered and the links between those servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Inventory {
    pub devices: Vec<DeviceSpec>,
    /// Every ordered pair of different servers.
    pub links: Vec<Link>,
    pub source: SmolStr,
    pub sink: SmolStr,
}

impl Inventory {
    /// Puts together what the file says and what the servers answered, in the order of the file.
    ///
    /// A memory limit is the smaller of what the file and the server say: an agent refuses more than its own.
    pub fn new(cluster: &Cluster, descriptions: &[(SmolStr, Description)], links: Vec<Link>) -> Inventory {
        let mut devices = Vec::new();
        for server in &cluster.servers {
            let Some((_, description)) = descriptions.iter().find(|(name, _)| *name == server.name) else { continue };
            devices.extend(description.devices.iter().map(|device| DeviceSpec {
                name: DeviceName::new(server.name.clone(), device.name.clone()),
                kind: device.kind,
                hardware: match device.kind {
                    DeviceKind::Cpu => format!("{}, {} cores", device.model, description.cpu.cores),
                    DeviceKind::Gpu => device.model.clone(),
                },
                engine: device.engine.clone(),
                threads: match device.kind {
                    DeviceKind::Cpu => server.threads_for(&device.name).unwrap_or(device.threads),
                    // A card computes with all that it has.
                    DeviceKind::Gpu => device.threads,
                },
                host_link: device.host_link,
                memory: server.memory_for(&device.name).map_or(device.memory, |m| m.min(device.memory)),
            }));
        }
        Inventory { devices, links, source: cluster.source.clone(), sink: cluster.sink.clone() }
    }
}

impl DeviceKind {
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
        }
    }
}
