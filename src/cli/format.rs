//! How verbs print their results: for people, as CSV, as JSON. Always to stdout.

use std::io::{self, Write};

use serde::Serialize;

use super::{Failure, Outcome};

/// What `--format` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Csv,
    Json,
}

/// Prints rows under a header of their fields' names.
pub fn print_csv<T: Serialize>(rows: &[T]) -> Outcome {
    let mut writer = csv::Writer::from_writer(io::stdout().lock());
    for row in rows {
        writer.serialize(row).map_err(Failure::failed)?;
    }
    writer.flush().map_err(Failure::failed)
}

/// Rows under a header of their fields' names.
pub fn to_csv<T: Serialize>(rows: &[T]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(Failure::failed)?;
    }
    writer.into_inner().map_err(|error| Failure::failed(error.into_error()))
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> Outcome {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(Failure::failed)?;
    writeln!(out).map_err(Failure::failed)
}
