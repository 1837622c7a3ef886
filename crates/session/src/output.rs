//! Writing results to files and streams.

use std::{io, path::Path};

pub use edgecut_values::files::Sink;
use edgecut_values::{destination::Destination, files::write_atomic};

use crate::Error;

/// Writes `content` to `path`. A file is replaced atomically. A stream is written directly.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    write_with(path, |file| file.write_all(content))
}

/// Like [`write`], with the content that `fill` writes.
///
/// # Errors
/// If it cannot be written, and those of `fill`.
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Sink) -> io::Result<()>) -> Result<(), Error> {
    write_atomic(path, fill).map_err(|error| Error::unwritable(path, &error))
}

/// Whether `path` is stdout.
pub fn is_stdout(path: &Path) -> bool {
    matches!(Destination::of(path), Ok(Destination::Stdout))
}

/// Checks that `path`, the value of `option`, is a folder or does not exist yet.
///
/// # Errors
/// If it is something else.
pub fn check_folder(option: &str, path: &Path) -> Result<(), Error> {
    match Destination::of(path) {
        Ok(Destination::File(file)) if !file.exists() => Ok(()),
        Ok(_) => {
            let what = format!("option `{option}={}`: several files are written: name a folder", path.display());
            Err(Error::BadInput(what.into()))
        }
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(()),
        Err(error) => Err(Error::unwritable(path, &error)),
    }
}

/// Makes the folder at `path`, if it is missing.
///
/// # Errors
/// If it cannot be made.
pub fn create_folder(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(|error| Error::unwritable(path, &error))
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
    // Missing folders are created when the file is written.
    let there =
        file.ancestors().skip(1).map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    match there.into_iter().find(|folder| folder.exists()).map(tempfile::tempfile_in) {
        Some(Err(error)) => Err(Error::unwritable(path, &error)),
        _ => Ok(()),
    }
}
