//! Files that are named on the command line.

use std::{io::Write, path::Path, sync::LazyLock};

use miette::Report;

use super::Failure;
use edgecut_cluster::agent::total_memory;
use edgecut_graph::units::Bytes;
use edgecut_values::{files::write_atomic, input_file};

/// Writes `content` to a file that appears whole.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    write_atomic(path, |file| file.write_all(content)).map_err(|e| Failure::unwritable(&path.display().to_string(), &e))
}

/// Finds out whether a file could be written at `path`, before work begins whose result goes there. Leaves nothing.
pub fn check_place(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        let what = format!("{} is a folder: name a file in it", path.display());
        return Err(Failure::BadInput(Report::msg(what)));
    }
    // Folders that are missing are made when the file is written.
    let there =
        path.ancestors().skip(1).map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    match there.into_iter().find(|folder| folder.exists()).map(tempfile::tempfile_in) {
        Some(Err(error)) => Err(Failure::unwritable(&path.display().to_string(), &error)),
        _ => Ok(()),
    }
}

/// Reads a file that was named on the command line.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    input_file::read(path, max_bytes()).map_err(|error| Failure::unreadable(&path.display().to_string(), &error))
}

/// Most bytes of a file that are read: half of the machine's memory, as what is read is held in a second form too.
pub fn max_bytes() -> u64 {
    static MAX: LazyLock<u64> = LazyLock::new(|| match total_memory() {
        Bytes::ZERO => u64::MAX,
        memory => memory.0 / 2,
    });
    *MAX
}
