//! The files of `edgecut run`: results, to which every run is appended, and outputs.

use std::path::Path;

use edgecut_agent::results::file::RunResult;
use edgecut_session::run::results_file;

use crate::{Outcome, source_file as file, stderr::status};

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
