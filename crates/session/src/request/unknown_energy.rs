//! The refusal to plan for energy where a device that may be used has none in its profile.

use edgecut_graph::DeviceName;
use std::{fmt, path::PathBuf};

use edgecut_profile::ProfileRow;

/// Devices that may be used and whose energy is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct UnknownEnergy {
    devices: Vec<Unmetered>,
}

/// A device whose profile has no energy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmetered {
    device: DeviceName,
    /// Of the profile, where it is a file.
    path: Option<PathBuf>,
    /// The columns that are empty in all rows; none where no row has all columns.
    empty: Vec<&'static str>,
    /// Why it has no energy source, if that is known.
    absent: Option<String>,
}

impl UnknownEnergy {
    /// # Errors
    /// If there are any `devices`.
    pub(super) fn check(devices: Vec<Unmetered>) -> Result<(), UnknownEnergy> {
        if devices.is_empty() { Ok(()) } else { Err(UnknownEnergy { devices }) }
    }
}

impl Unmetered {
    pub fn new(device: DeviceName, path: Option<PathBuf>, rows: &[ProfileRow], absent: Option<String>) -> Unmetered {
        let columns = [
            ("energy_j", rows.iter().any(|row| row.energy_j.is_some())),
            ("idle_w", rows.iter().any(|row| row.idle_w.is_some())),
            ("energy_source", rows.iter().any(|row| row.energy_source.is_some())),
        ];
        let empty = columns.into_iter().filter(|(_, is_set)| !is_set).map(|(name, _)| name);
        Unmetered { device, path, empty: empty.collect(), absent }
    }
}

impl fmt::Display for UnknownEnergy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the objective energy needs energy_j, idle_w and energy_source of every device that may be used")?;
        for Unmetered { device, path, empty, absent } in &self.devices {
            let what = match empty.len() {
                0 => "no row with all three".to_string(),
                3 => "none".to_string(),
                _ => format!("no {}", empty.join(" and no ")),
            };
            let path = path.as_ref().map_or("its profile".to_string(), |path| path.display().to_string());
            let absent = absent.as_ref().map_or(String::new(), |why| format!(", and cannot measure any: {why}"));
            writeln!(f, "{device} has {what} in {path}{absent}")?;
        }
        if self.devices.iter().any(|device| device.absent.is_none()) {
            writeln!(
                f,
                "`edgecut devices` says whether a device has an energy source; what was measured before it had one is \
                 measured again by `edgecut profile` with option `again`"
            )?;
        }
        f.write_str(
            "figures of an external meter can be written into the columns of a profile (docs/operations.md); \
             option `ban=*=SERVER/DEVICE` leaves a device out; option `objective=latency` needs no energy",
        )
    }
}
