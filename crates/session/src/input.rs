//! Reading files that options name.

use std::{
    io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use edgecut_agent::server::total_memory;
use edgecut_graph::units::Bytes;
use edgecut_values::input_file::{self, MAX_DOCUMENT_BYTES, read_text};

use crate::Error;

/// Reads the file at `path`.
///
/// # Errors
/// If it cannot be read, or is larger than half of the machine's memory.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    input_file::read(path, max_bytes()).map_err(|error| Error::unreadable(path, &error))
}

/// Reads a text that people write, such as a cluster file.
///
/// # Errors
/// If it cannot be read, is too large, or is not UTF-8.
pub fn read_document(path: &Path) -> io::Result<String> {
    read_text(path, MAX_DOCUMENT_BYTES)
}

/// Maximum size of a file: half of the machine's memory, because its content is also held in a second form.
pub(crate) fn max_bytes() -> u64 {
    static MAX: LazyLock<u64> = LazyLock::new(|| match total_memory() {
        Bytes::ZERO => u64::MAX,
        memory => memory.0 / 2,
    });
    *MAX
}

/// Resolves the path `named` in the plan at `plan`. It is relative to the working directory or, if no such file exists
/// there, to the plan's folder.
pub(crate) fn resolve(plan: &Path, named: &str) -> PathBuf {
    let (here, there) = (PathBuf::from(named), plan.parent().unwrap_or(Path::new("")).join(named));
    if !here.exists() && there.exists() { there } else { here }
}
