//! Calibrations of devices: made by `edgecut devices --calibrate`, kept next to profiles, and used by `edgecut plan`.

use std::path::Path;

use super::{
    Failure,
    caller::{notice, status},
    located::Located,
    progress_line::ProgressLine,
    table::{Table, table},
};
use edgecut_cluster::{
    Cluster, DeviceSpec, Inventory,
    agent::Fleet,
    calibration::{CalibrationRequest, CalibrationTable, calibrate},
    survey::profiled_device,
};
use edgecut_profile::{Calibration, CalibrationRow};

/// The name of the table in a folder of profiles.
pub const FILE: &str = "calibration.csv";

/// What the devices of a plan were calibrated with.
pub struct Calibrations {
    /// In the order of the devices.
    pub found: Vec<Option<Calibration>>,
    /// Which devices are calibrated, in a sentence for the plan's notes.
    pub note: String,
}

impl Calibrations {
    /// Reads the table at `path`, if there is one, and says on stderr whether `devices` are calibrated.
    ///
    /// # Errors
    /// If the file is no such table.
    pub fn read(path: &Path, devices: &[DeviceSpec]) -> Result<Calibrations, Failure> {
        let known = CalibrationTable::load(path).map_err(|error| Failure::bad_input(Located::new(path, error)))?;
        let mut found = Vec::with_capacity(devices.len());
        for device in devices {
            let calibration = known.find(&profiled_device(device)).unwrap_or_else(|stale| {
                notice!("{}: {stale}; not used", path.display());
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
                "calibrated: no (`edgecut devices --calibrate` learns what runs take beyond profiles)".to_string()
            }
            (false, true) => format!("calibrated: yes, by {}", path.display()),
            (false, false) => {
                // Compared with devices that are not calibrated, others would look slower than they are.
                found.fill(None);
                format!("calibrated: no, as {} has no valid row in {}", without.join(", "), path.display())
            }
        };
        status!("{note}");
        Ok(Calibrations { found, note })
    }

    /// The note for the plan, if any device is calibrated.
    pub fn notes(&self) -> Vec<String> {
        self.found.iter().flatten().next().map(|_| self.note.clone()).into_iter().collect()
    }
}

/// Calibrates the devices of `inventory`, adds them to the table at `path` and returns their rows.
pub async fn calibrate_devices(
    fleet: &Fleet,
    cluster: &Cluster,
    inventory: &Inventory,
    path: &Path,
) -> Result<Vec<CalibrationRow>, Failure> {
    let bad = |error| Failure::bad_input(Located::new(path, error));
    // A file that is no table is not overwritten, and found before anything is measured.
    CalibrationTable::load(path).map_err(bad)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let line = ProgressLine::start();
    let progress = |what: &str| line.show(format!("calibrating: {what}"));
    let request = CalibrationRequest { fleet, cluster, inventory, folder, progress: &progress };
    let rows = calibrate(&request).await.map_err(Failure::failed)?;
    drop(line);
    CalibrationTable::update(path, &rows).map_err(|error| Failure::failed(Located::new(path, error)))?;
    status!("calibration written to {}", path.display());
    Ok(rows)
}

/// The rows as a table for people.
pub fn calibration_table(rows: &[CalibrationRow]) -> Table {
    let mut shown = table([
        "device",
        ">× isolated",
        ">a step",
        ">a MB of weights",
        ">to send",
        ">a MB sent",
        ">to receive",
        ">a MB received",
        ">exchange",
        ">off before",
        ">off after",
    ]);
    let microseconds = |value: f64| format!("{value:.0} us");
    for row in rows {
        shown.add_row([
            row.device_name().to_string(),
            format!("{:.3}", row.factor),
            row.step_us.to_string(),
            microseconds(row.weights_us_per_mb),
            row.send_us.to_string(),
            microseconds(row.send_us_per_mb),
            row.receive_us.to_string(),
            microseconds(row.receive_us_per_mb),
            row.exchange_us.to_string(),
            format!("{:.1} %", 100.0 * row.error_without),
            format!("{:.1} %", 100.0 * row.error_with),
        ]);
    }
    shown
}
