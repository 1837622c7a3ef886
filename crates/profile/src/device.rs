//! The identity of a profiled device.

use serde::{Deserialize, Serialize};

use edgecut_engine::EngineId;

/// The device that was measured, with the engine and the number of threads that executed the operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfiledDevice {
    pub server: String,
    /// Name of the device on its server.
    pub device: String,
    /// Model of the hardware.
    pub hardware: String,
    pub engine: EngineId,
    pub threads: usize,
}
