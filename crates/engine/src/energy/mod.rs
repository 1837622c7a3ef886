//! The energy that a device consumes, where the system tells it.
//!
//! | module | contents |
//! |---|---|
//! | [`EnergyMeter`], [`EnergyReading`] (`meter`) | finds the source of a device; a measurement in progress |
//! | `powercap`, `hwmon`, `nvml` (feature `cuda`) | one source each |
//! | `counter`, `sysfs` | counters that start again from 0; files of one value |
//! | [`NoEnergySource`], [`Absence`], [`EnergyLost`] (`error`) | why there is no source, or no longer one |
//!
//! What a source counts is a whole package, board or GPU, with what it draws when idle and with all processes that use it.

mod counter;
mod error;
mod hwmon;
mod meter;
#[cfg(feature = "cuda")]
mod nvml;
mod powercap;
mod sysfs;

use std::{fmt, time::Instant};

use serde::{Deserialize, Serialize};

pub use error::{Absence, AbsentSource, EnergyLost, NoEnergySource};
pub use meter::{EnergyMeter, EnergyReading};

use edgecut_graph::units::Joules;

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
}

impl EnergySource {
    const ALL: [EnergySource; 3] = [EnergySource::Powercap, EnergySource::Hwmon, EnergySource::Nvml];

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
        })
    }
}

/// One measurement of a source, which is read again and again.
trait EnergyProbe: Send {
    /// The energy since the call before, or since the probe was opened; not negative. `now` is the time of the call.
    fn advance(&mut self, now: Instant) -> Result<Joules, EnergyLost>;
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
