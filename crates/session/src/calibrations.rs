//! Calibrations of devices: what runs take beyond isolated times. They are stored next to profiles.

use std::path::Path;

use edgecut_agent::DeviceSpec;
use edgecut_profile::Calibration;

use crate::{Error, Events, calibration::CalibrationTable, located::Located, survey::profiled_device};

/// File name of the table in a folder of profiles.
pub const FILE: &str = "calibration.csv";

/// The calibrations of the devices of a plan.
pub struct Calibrations {
    /// One entry per device; `None` if it is not calibrated.
    pub found: Vec<Option<Calibration>>,
    /// Which devices are calibrated, as a sentence for the plan's notes.
    pub note: String,
}

impl Calibrations {
    /// Reads the table at `path`, if there is one, and reports whether `devices` are calibrated. If any device has no
    /// calibration, none is used.
    ///
    /// # Errors
    /// If the file is not a table of calibrations.
    pub fn read(path: &Path, devices: &[DeviceSpec], events: &Events) -> Result<Calibrations, Error> {
        let known = CalibrationTable::load(path).map_err(|error| Error::bad_input(Located::new(path, error)))?;
        let mut found = Vec::with_capacity(devices.len());
        for device in devices {
            let calibration = known.find(&profiled_device(device)).unwrap_or_else(|stale| {
                events.notice(format_args!("{}: {stale}; not used", path.display()));
                None
            });
            found.push(calibration);
        }
        let names = |wanted: bool| -> Vec<String> {
            let named = devices.iter().zip(&found).filter(|(_, calibration)| calibration.is_some() == wanted);
            named.map(|(device, _)| device.name.to_string()).collect()
        };
        let (with, without) = (names(true), names(false));
        let note = match (with.is_empty(), without.is_empty()) {
            (true, _) => {
                "calibrated: no (`edgecut devices` with option `calibrate` learns what runs take beyond profiles)"
                    .to_string()
            }
            (false, true) => format!("calibrated: yes, by {}", path.display()),
            (false, false) => {
                // A calibrated device would look slower than one without a calibration.
                found.fill(None);
                format!("calibrated: no, as {} has no valid row in {}", without.join(", "), path.display())
            }
        };
        events.status(&note);
        Ok(Calibrations { found, note })
    }

    /// The note for the plan; empty if no device is calibrated.
    pub fn notes(&self) -> Vec<String> {
        self.found.iter().flatten().next().map(|_| self.note.clone()).into_iter().collect()
    }
}
