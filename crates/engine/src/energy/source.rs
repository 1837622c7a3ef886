//! The kinds of sources.

use std::fmt;

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
    /// A meter of the server outside of it, whose values a person wrote into a profile.
    External,
}

impl EnergySource {
    const ALL: [EnergySource; 4] =
        [EnergySource::Powercap, EnergySource::Hwmon, EnergySource::Nvml, EnergySource::External];

    /// The source that profiles call `name`.
    pub fn named(name: &str) -> Option<EnergySource> {
        EnergySource::ALL.into_iter().find(|source| source.to_string() == name)
    }
}

impl fmt::Display for EnergySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EnergySource::Powercap => "powercap",
            EnergySource::Hwmon => "hwmon",
            EnergySource::Nvml => "nvml",
            EnergySource::External => "external",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_found_by_its_name() {
        for source in EnergySource::ALL {
            assert_eq!(EnergySource::named(&source.to_string()), Some(source));
        }
        assert_eq!(EnergySource::named("battery"), None);
    }
}
