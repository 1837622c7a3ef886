//! Files that are named on the command line.

use std::{io::Write, path::Path};

use super::Failure;
use crate::files::write_whole;

/// Writes `content` to a file that appears whole.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    write_whole(path, |file| file.write_all(content)).map_err(|e| Failure::unwritable(&path.display().to_string(), &e))
}

/// Reads a file that was named on the command line.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::unreadable(&path.display().to_string(), &error))
}
