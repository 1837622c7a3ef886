//! How calibrations of devices are printed.

use edgecut_profile::CalibrationRow;

use super::table::{Table, table};

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
