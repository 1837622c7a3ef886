//! The table of calibrations (`calibration.csv`), kept next to profiles: one row a device.

use std::{io, path::Path};

use edgecut_profile::{Calibration, CalibrationRow, ProfiledDevice};
use edgecut_values::{
    files::{lock, write_atomic},
    input_file::{self, MAX_TABLE_BYTES},
};

/// All calibrated devices, in the order of their first calibration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CalibrationTable {
    pub rows: Vec<CalibrationRow>,
}

/// Why a table cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationTableError {
    #[error(transparent)]
    Csv(#[from] csv::Error),
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("the row of {0} has a parameter that is negative or not finite")]
    Parameter(String),
}

/// A calibration of a device that has changed since.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the calibration of {device} is of {was}; it is {is} now: calibrate it again by `edgecut devices` with option `calibrate`"
)]
pub struct Stale {
    device: String,
    was: String,
    is: String,
}

impl CalibrationTable {
    /// Reads a table; empty if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read or is not such a table.
    pub fn load(path: &Path) -> Result<CalibrationTable, CalibrationTableError> {
        match input_file::read(path, MAX_TABLE_BYTES) {
            Ok(text) => CalibrationTable::read(text.as_slice()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(CalibrationTable::default()),
            Err(e) => Err(e.into()),
        }
    }

    /// Adds `rows` to the table at `path`, in place of those of the same devices. Other processes may do so at the same
    /// time.
    ///
    /// # Errors
    /// If the file cannot be read or written, or is not such a table.
    pub fn update(path: &Path, rows: &[CalibrationRow]) -> Result<(), CalibrationTableError> {
        let _lock = lock(path)?;
        let mut table = CalibrationTable::load(path)?;
        rows.iter().for_each(|row| table.insert(row.clone()));
        write_atomic(path, |file| table.write(file))
    }

    /// Reads CSV.
    ///
    /// # Errors
    /// If it is not CSV with the columns of [`CalibrationRow`], or a parameter is none.
    pub fn read(reader: impl io::Read) -> Result<CalibrationTable, CalibrationTableError> {
        let rows: Vec<CalibrationRow> =
            csv::Reader::from_reader(reader).into_deserialize().collect::<Result<_, _>>()?;
        match rows.iter().find(|row| !row.is_valid()) {
            Some(row) => Err(CalibrationTableError::Parameter(row.device_name().to_string())),
            None => Ok(CalibrationTable { rows }),
        }
    }

    /// Writes CSV.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&self, writer: impl io::Write) -> Result<(), CalibrationTableError> {
        let mut writer = csv::Writer::from_writer(writer);
        for row in &self.rows {
            writer.serialize(row)?;
        }
        writer.flush()?;
        Ok(())
    }

    /// Adds `row`, or replaces those of the same device.
    pub fn insert(&mut self, row: CalibrationRow) {
        self.rows.retain(|known| (&known.server, &known.device) != (&row.server, &row.device));
        self.rows.push(row);
    }

    /// The calibration of `device`, if there is one.
    ///
    /// # Errors
    /// If it was made with other hardware, another engine or other threads.
    pub fn find(&self, device: &ProfiledDevice) -> Result<Option<Calibration>, Stale> {
        let Some(row) = self.rows.iter().find(|row| row.is_named(device)) else { return Ok(None) };
        if row.is_of(device) {
            return Ok(Some(row.calibration()));
        }
        let text = |hardware: &str, engine: &str, version: &str, threads: usize| {
            format!("{hardware}, {engine} {version}, threads: {threads}")
        };
        Err(Stale {
            device: row.device_name().to_string(),
            was: text(&row.hardware, &row.engine, &row.engine_version, row.threads),
            is: text(&device.hardware, &device.engine.name, &device.engine.version, device.threads),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_engine::EngineId;
    use edgecut_graph::units::Micros;

    fn device(threads: usize) -> ProfiledDevice {
        let engine = EngineId { name: "tract".into(), version: "1".into() };
        ProfiledDevice { server: "a".into(), device: "cpu".into(), hardware: "Xeon".into(), engine, threads }
    }

    #[test]
    fn rows_round_trip_and_stale_ones_are_refused() {
        let calibration = |step| Calibration { step_us: Micros(step), factor: 1.5, ..Calibration::default() };
        let mut table = CalibrationTable::default();
        for step in [3.0, 4.5] {
            table.insert(CalibrationRow::new(&device(1), calibration(step), &[]));
        }
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        let read = CalibrationTable::read(text.as_slice()).unwrap();
        assert_eq!((&read, read.rows.len()), (&table, 1));
        assert_eq!(read.find(&device(1)), Ok(Some(calibration(4.5))));
        let stale = read.find(&device(2)).unwrap_err().to_string();
        assert!(stale.contains("threads: 1; it is") && stale.contains("threads: 2 now"), "{stale}");
        let other = ProfiledDevice { device: "gpu0".into(), ..device(1) };
        assert_eq!(read.find(&other), Ok(None));
        let broken = String::from_utf8(text).unwrap().replace("4.5", "-4.5");
        let refused = CalibrationTable::read(broken.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains("a/cpu"), "{refused}");
    }
}
