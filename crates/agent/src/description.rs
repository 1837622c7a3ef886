//! What a server reports of its hardware and its devices.

use edgecut_graph::{EngineId, units::Bytes};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::link::HostLink;
use edgecut_engine::EngineChoice;

/// A server's report of its hardware.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The name the agent was started with.
    pub name: SmolStr,
    /// The agent's version of edgecut.
    pub version: String,
    /// Operating system and its version.
    pub system: String,
    pub cpu: CpuDescription,
    /// Main memory of the machine.
    pub memory_total: Bytes,
    /// Main memory that is free now.
    pub memory_available: Bytes,
    pub devices: Vec<DeviceDescription>,
    /// Notes for the user about the devices, such as why there is no GPU.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What the agent's process was computing when it was last killed, and how it was killed; `None` if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<String>,
}

/// The CPU of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuDescription {
    pub model: String,
    pub cores: u32,
    /// Hardware threads that the agent may use.
    pub threads: u32,
    pub architecture: String,
    pub caches: Vec<Cache>,
}

/// One level of data cache of a core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// `L1d`, `L2`, `L3`.
    pub name: SmolStr,
    pub size: Bytes,
}

/// A CPU or GPU of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// Unique on its server: `cpu`, `gpu0`.
    pub name: SmolStr,
    pub kind: DeviceKind,
    /// The model of the hardware.
    pub model: String,
    pub engine: EngineId,
    /// All engines that it has, if it has a choice.
    #[serde(default)]
    pub engines: Vec<EngineId>,
    /// Threads to compute with; multiprocessors of a GPU.
    pub threads: u32,
    /// Limit on parameters, activations and workspace together.
    pub memory: Bytes,
    /// Cost of copies between main memory and the device; `None` if it computes in main memory.
    #[serde(default)]
    pub host_link: Option<HostLink>,
    pub energy: EnergyMetering,
}

/// What measures the energy of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnergyMetering {
    /// A source and its parts: `powercap: package-0, package-1`.
    Source(String),
    /// Nothing: each source that was looked for, and why it is absent.
    Absent(String),
}

/// The choice that selects this engine; `None` if none does.
pub fn engine_choice(engine: &EngineId) -> Option<EngineChoice> {
    engine.name.parse().ok()
}

impl DeviceDescription {
    /// All engines that it has a choice of, as a list; empty if it has none.
    pub fn engine_choices(&self) -> String {
        self.engines.iter().map(EngineId::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The engine that `engine` chooses, if the device has it.
    pub fn engine_of(&self, engine: EngineChoice) -> Option<&EngineId> {
        self.engines.iter().chain([&self.engine]).find(|known| engine_choice(known) == Some(engine))
    }
}

impl EnergyMetering {
    /// The source and its parts.
    pub fn source(&self) -> Option<&str> {
        match self {
            EnergyMetering::Source(source) => Some(source),
            EnergyMetering::Absent(_) => None,
        }
    }

    /// Why there is no source.
    pub fn absent(&self) -> Option<&str> {
        match self {
            EnergyMetering::Absent(why) => Some(why),
            EnergyMetering::Source(_) => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    Cpu,
    Gpu,
}

impl DeviceKind {
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
        }
    }
}
