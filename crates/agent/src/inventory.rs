//! The devices and links of a cluster that a plan can use.

use edgecut_graph::{DeviceName, EngineId, units::Bytes};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{
    cluster::Cluster,
    description::{Description, DeviceKind, engine_choice},
    link::{HostLink, Link},
};
use edgecut_engine::EngineChoice;

/// The devices of all servers that answered, and the links between these servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Inventory {
    pub devices: Vec<DeviceSpec>,
    /// One for every ordered pair of servers.
    pub links: Vec<Link>,
    /// The server where inputs begin, and that where results must arrive.
    pub source: SmolStr,
    pub sink: SmolStr,
}

/// A device of the cluster: its description under the limits of the cluster file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceSpec {
    pub name: DeviceName,
    pub kind: DeviceKind,
    /// The hardware's model; for a CPU with its number of cores.
    pub hardware: String,
    pub engine: EngineId,
    pub threads: u32,
    pub memory: Bytes,
    pub host_link: Option<HostLink>,
}

impl Inventory {
    /// Combines the cluster file with the servers' descriptions, in the order of the file. A memory limit is the smaller
    /// of the file's and the server's: an agent refuses more than its own.
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
                engine: match server.engine.filter(|_| device.kind == DeviceKind::Cpu) {
                    Some(engine) => device.engine_of(engine).unwrap_or(&device.engine).clone(),
                    None => device.engine.clone(),
                },
                threads: match device.kind {
                    DeviceKind::Cpu => server.threads_for(&device.name).unwrap_or(device.threads),
                    // A GPU computes with all of its multiprocessors.
                    DeviceKind::Gpu => device.threads,
                },
                host_link: device.host_link,
                memory: server.memory_for(&device.name).map_or(device.memory, |m| m.min(device.memory)),
            }));
        }
        Inventory { devices, links, source: cluster.source.clone(), sink: cluster.sink.clone() }
    }
}

impl DeviceSpec {
    /// The engine that is asked of its agent.
    pub fn engine_choice(&self) -> Option<EngineChoice> {
        engine_choice(&self.engine)
    }
}
