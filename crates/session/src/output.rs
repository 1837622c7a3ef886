//! Writing results to files and streams.

use std::{io, path::Path};

use edgecut_values::{destination::Destination, files::write_atomic};

use crate::Error;

/// Writes `content` to `path`. A file is replaced atomically. A stream is written directly.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    write_atomic(path, |file| file.write_all(content)).map_err(|error: io::Error| Error::unwritable(path, &error))
}

/// Whether `path` names a file in a folder, not a stream or stdout. Other files can be written next to it.
pub fn is_file(path: &Path) -> bool {
    Destination::of(path).is_ok_and(|to| to.is_file())
}

/// Checks that `path` can be written, before the work whose result goes there begins. Leaves no file behind.
///
/// # Errors
/// If it cannot be written.
pub fn check_writable(path: &Path) -> Result<(), Error> {
    let file = match Destination::of(path).map_err(|error| Error::unwritable(path, &error))? {
        Destination::Stdout | Destination::Stream(_) => return Ok(()),
        Destination::File(file) => file,
    };
    // UnreachableAgents folders are created when the file is written.
    let there =
        file.ancestors().skip(1).map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    match there.into_iter().find(|folder| folder.exists()).map(tempfile::tempfile_in) {
        Some(Err(error)) => Err(Error::unwritable(path, &error)),
        _ => Ok(()),
    }
}
