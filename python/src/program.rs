//! The command line, in the interpreter's process.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command line with these arguments, of which the first is the program's name, and returns its exit code.
///
/// For a process that does nothing else: wrong usage ends it.
#[pyfunction]
pub fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| edgecut_cli::main(arguments))
}
