//! Why a device has no source of energy, or no longer one.

use std::{fmt, path::PathBuf};

use super::EnergySource;

/// None of the sources that a device could have is there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct NoEnergySource(
    /// In the order in which they were looked for.
    pub Vec<AbsentSource>,
);

/// A source that is not there, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentSource {
    pub source: EnergySource,
    pub why: Absence,
}

/// Why a source cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    #[error("no folder {}", .0.display())]
    NoFolder(PathBuf),
    /// There is a folder for zones, but none of a package in it.
    #[error("no zone of a processor's package below {}", .0.display())]
    NoPackage(PathBuf),
    /// Since Linux 5.10 for RAPL (CVE-2020-8694).
    #[error("{} is readable by root alone: run the agent as root, or `chmod a+r {}`", .0.display(), .0.display())]
    Permission(PathBuf),
    #[error("{}: {why}", .file.display())]
    Unreadable { file: PathBuf, why: String },
    #[error("no power sensor of a board or a processor below {}{}", .folder.display(), chips(.found))]
    NoSensor {
        folder: PathBuf,
        /// The chips that are there.
        found: Vec<String>,
    },
    #[error("{library} cannot be loaded: {why}")]
    Library { library: &'static str, why: String },
    #[error("the GPU at {bus_id} tells no energy: {why}")]
    Gpu { bus_id: String, why: String },
    #[error("the driver does not tell where the GPU is on the bus")]
    NoBusId,
}

/// A source that was there and can be read no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} can no longer be read: {why}")]
pub struct EnergyLost {
    pub what: String,
    pub why: String,
}

fn chips(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!(", only {}", found.join(", ")) }
}

impl fmt::Display for AbsentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.why)
    }
}

impl fmt::Display for NoEnergySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each: Vec<String> = self.0.iter().map(AbsentSource::to_string).collect();
        f.write_str(&each.join("; "))
    }
}
