//! How verbs print their results: for people, as CSV, as JSON.

use serde::Serialize;

use super::{Failure, Outcome, stdout};

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
    print_all(&to_csv(rows)?)
}

/// Prints a text. Where stdout takes no more, the program says so at its end.
pub fn print_all(text: &[u8]) -> Outcome {
    stdout::print(text);
    Ok(())
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
    let text = serde_json::to_string_pretty(value).map_err(Failure::failed)? + "\n";
    print_all(text.as_bytes())
}
