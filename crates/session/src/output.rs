//! Files that results go to.

use std::{io, path::Path};

use edgecut_values::{destination::Destination, files::write_atomic};

use crate::Error;

/// Writes `content` to where `path` leads: a file appears whole, a stream is written in place.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    write_atomic(path, |file| file.write_all(content)).map_err(|error: io::Error| Error::unwritable(path, &error))
}

/// Whether `path` names a file that others can lie next to, and not a stream or stdout.
pub fn is_file(path: &Path) -> bool {
    Destination::of(path).is_ok_and(|to| to.is_file())
}

/// Finds out whether something could be written at `path`, before work begins whose result goes there. Leaves nothing.
///
/// # Errors
/// If it could not be written.
pub fn check_place(path: &Path) -> Result<(), Error> {
    let file = match Destination::of(path).map_err(|error| Error::unwritable(path, &error))? {
        Destination::Stdout | Destination::Stream(_) => return Ok(()),
        Destination::File(file) => file,
    };
    // Folders that are missing are made when the file is written.
    let there =
        file.ancestors().skip(1).map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    match there.into_iter().find(|folder| folder.exists()).map(tempfile::tempfile_in) {
        Some(Err(error)) => Err(Error::unwritable(path, &error)),
        _ => Ok(()),
    }
}
