//! The files of `edgecut run`: results, to which every run is appended, and outputs.

use std::path::Path;

use edgecut_agent::results::file::RunResult;
use edgecut_graph::TensorData;
use edgecut_session::run::results_file;
use edgecut_values::{NpzError, write_npz};

use crate::{Failure, Outcome, source_file as file, stderr::status};

/// Writes the outputs of a run, as `out_0`, `out_1`, ….
pub(super) fn write_outputs(path: &Path, outputs: &[TensorData]) -> Outcome {
    let named = outputs.iter().enumerate().map(|(i, tensor)| (format!("out_{i}"), tensor));
    write_npz(path, named).map_err(|error| match error {
        NpzError::File { source, .. } => Failure::unwritable(path, &source),
        error => Failure::failed(error),
    })
}

/// Finds out whether results can be appended to the file, before anything runs.
pub(super) fn check(path: &Path) -> Outcome {
    file::check_writable(path)?;
    results_file::check(path)
}

/// Appends one run to the file.
pub(super) fn append(path: &Path, result: RunResult) -> Outcome {
    results_file::append(path, result, &file::write)?;
    status!("results appended to {}", path.display());
    Ok(())
}
