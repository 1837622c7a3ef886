//! The files of `edgecut run`: results, to which every run is appended, and outputs; and what an interruption leaves of them.

use std::{io, path::Path};

use miette::Report;

use crate::{
    Failure, Outcome,
    caller::{is_stopped, notice, status},
    located::Located,
    source_file as file,
};
use edgecut_cluster::run::results::{RunResult, RunResults, check_csv, to_csv};
use edgecut_graph::TensorData;
use edgecut_values::{
    NpzError,
    files::lock,
    input_file::{self, MAX_TABLE_BYTES},
    write_npz,
};

/// What Ctrl-C leaves.
pub(super) const KEPT: &str = "the finished runs are reported";

/// Says how many runs were finished before Ctrl-C.
///
/// # Errors
/// If none was, or a caller wants no more.
pub(super) fn tell_interrupted(finished: u64, wanted: u64) -> Outcome {
    if finished == 0 || is_stopped() {
        return Err(Failure::Stopped);
    }
    notice!("interrupted: {finished} of {wanted} runs were finished, and are what follows");
    Ok(())
}

/// Writes the outputs of a run, as `out_0`, `out_1`, ….
pub(super) fn write_outputs(path: &Path, outputs: &[TensorData]) -> Outcome {
    let named = outputs.iter().enumerate().map(|(i, tensor)| (format!("out_{i}"), tensor));
    write_npz(path, named).map_err(|error| match error {
        NpzError::File { source, .. } => file::unwritable(path, &source),
        error => Failure::failed(error),
    })
}

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
            // A device or FIFO has the name that it has.
            _ if !file::is_file(path) => Ok(Encoding::Json),
            _ => {
                let what = format!("--output {}: expected FILE.csv or FILE.json", path.display());
                Err(Failure::BadInput(Report::msg(what)))
            }
        }
    }
}

/// Finds out whether results can be appended to the file, before anything runs.
pub(super) fn check(path: &Path) -> Outcome {
    file::check_place(path)?;
    let encoding = Encoding::of(path)?;
    read(path, encoding).map(|_| ())
}

/// Appends one run to the file. Other processes may do the same meanwhile.
pub(super) fn append(path: &Path, result: RunResult) -> Outcome {
    let encoding = Encoding::of(path)?;
    let _lock = match file::is_file(path) {
        true => Some(lock(path).map_err(|error| file::unwritable(path, &error))?),
        false => None,
    };
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

/// What the file has so far, with its last line ended, and its runs if it is JSON; nothing if it is missing or a stream.
fn read(path: &Path, encoding: Encoding) -> Result<(Vec<u8>, RunResults), Failure> {
    let mut text = match file::is_file(path).then(|| input_file::read(path, MAX_TABLE_BYTES)) {
        None => Vec::new(),
        Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Some(read) => read.map_err(|error| Failure::unreadable(&path.display().to_string(), &error))?,
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
