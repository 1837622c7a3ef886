//! Where the energy that a device consumes can be read.

use serde::{Deserialize, Serialize};

/// What tells the energy of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnergySource {
    /// Counters of the processor's package (Intel's and AMD's RAPL), in `/sys/class/powercap`.
    Powercap,
    /// Power sensors of the board, such as the rails of a Jetson, in `/sys/class/hwmon`.
    Hwmon,
    /// The counter of an NVIDIA GPU, read through NVML.
    Nvml,
    /// A power meter of the whole server, whose figures a person fills into the profile.
    External,
}
