//! `run --output`: the file of results, to which every run is appended.

use std::{io, path::Path};

use miette::Report;

use crate::{Failure, Outcome, caller::status, located::Located, source_file as file};
use edgecut_cluster::run::results::{RunResult, RunResults, check_csv, to_csv};
use edgecut_values::{
    files::lock,
    input_file::{self, MAX_TABLE_BYTES},
};

/// How results are written, by the name of the file.
#[derive(Clone, Copy)]
enum Encoding {
    Csv,
    Json,
}

impl Encoding {
    fn of(path: &Path) -> Result<Encoding, Failure> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        match extension.to_str() {
            Some("csv") => Ok(Encoding::Csv),
            Some("json") => Ok(Encoding::Json),
            _ => {
                let what = format!("--output {}: expected FILE.csv or FILE.json", path.display());
                Err(Failure::BadInput(Report::msg(what)))
            }
        }
    }
}

/// Finds out whether results can be appended to the file, before anything runs.
pub(super) fn check(path: &Path) -> Outcome {
    let encoding = Encoding::of(path)?;
    file::check_place(path)?;
    read(path, encoding).map(|_| ())
}

/// Appends one run to the file. Other processes may do the same meanwhile.
pub(super) fn append(path: &Path, result: RunResult) -> Outcome {
    let encoding = Encoding::of(path)?;
    let unwritable = |error: io::Error| Failure::unwritable(&path.display().to_string(), &error);
    let _lock = lock(path).map_err(unwritable)?;
    let (mut text, mut results) = read(path, encoding)?;
    match encoding {
        Encoding::Csv => {
            // Rewritten as a whole, so that no crash leaves a part of a row.
            text.extend(to_csv(&result, text.is_empty()).map_err(Failure::failed)?);
            file::write(path, &text)?;
        }
        Encoding::Json => {
            results.runs.push(result);
            file::write(path, results.to_json().map_err(Failure::failed)?.as_bytes())?;
        }
    }
    status!("results appended to {}", path.display());
    Ok(())
}

/// What the file has so far, with its last line ended, and its runs if it is JSON; nothing if it is missing.
fn read(path: &Path, encoding: Encoding) -> Result<(Vec<u8>, RunResults), Failure> {
    let mut text = match input_file::read(path, MAX_TABLE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.map_err(|error| Failure::unreadable(&path.display().to_string(), &error))?,
    };
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    let results = match encoding {
        _ if text.is_empty() => Ok(RunResults::default()),
        Encoding::Csv => check_csv(&text).map(|()| RunResults::default()),
        Encoding::Json => RunResults::from_json(&text),
    };
    Ok((text, results.map_err(|error| Failure::bad_input(Located::new(path, error)))?))
}
