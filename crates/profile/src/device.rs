//! The identity of a profiled device: rows that agree in all of it are of one device, under the same conditions.

use serde::{Deserialize, Serialize};

use edgecut_engine::EngineId;
use edgecut_graph::DeviceName;
use edgecut_graph::units::counted;

/// The device that was measured, with the engine and the number of threads that executed the operators.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProfiledDevice {
    pub server: String,
    /// Name of the device on its server.
    pub device: String,
    /// Model of the hardware.
    pub hardware: String,
    pub engine: EngineId,
    pub threads: usize,
}

impl ProfiledDevice {
    /// Its name in pins and tables.
    pub fn device_name(&self) -> DeviceName {
        DeviceName::new(self.server.as_str(), self.device.as_str())
    }

    /// The number of threads in words.
    pub fn threads_text(&self) -> String {
        counted(self.threads, "thread")
    }
}
