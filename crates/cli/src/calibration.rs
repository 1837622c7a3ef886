//! Calibrations of devices: made by `edgecut devices --calibrate`.

use std::path::Path;

use super::{
    Failure,
    progress_line::ProgressLine,
    stderr::status,
    table::{Table, table},
};
use edgecut_agent::{Cluster, Inventory, client::Fleet};
use edgecut_profile::CalibrationRow;
use edgecut_session::{
    calibration::{CalibrationRequest, CalibrationTable, calibrate},
    located::Located,
};

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
