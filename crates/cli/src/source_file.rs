//! Files that are named on the command line.

use std::{io, path::Path};

use edgecut_session::error::Message;
pub use edgecut_session::{input::read, output::is_file};

use super::{Failure, Outcome, stderr::notice, stdout};
use edgecut_values::{
    destination::Destination,
    files::{Sink, write_atomic},
};

/// Writes `content` to where `path` leads: a file appears whole, a stream is written in place, `-` is stdout.
pub fn write(path: &Path, content: &[u8]) -> Outcome {
    write_with(path, |file| file.write_all(content))
}

/// Writes what `fill` does, as [`write`].
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Sink) -> io::Result<()>) -> Outcome {
    if let Ok(Destination::Stdout) = Destination::of(path) {
        let mut content = io::Cursor::new(Vec::new());
        fill(&mut content).map_err(|error| Failure::unwritable(path, &error))?;
        stdout::write(content.get_ref());
        return Ok(());
    }
    write_atomic(path, fill).map_err(|error| Failure::unwritable(path, &error))
}

/// Tries all of `writes`, whatever becomes of those before: returns the first failure, and reports the others.
pub fn all(writes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let mut failures = writes.into_iter().filter_map(Result::err);
    let Some(first) = failures.next() else { return Ok(()) };
    failures.for_each(|failure| {
        if let Some(message) = failure.message() {
            notice!("{message}");
        }
    });
    Err(first)
}

/// As [`edgecut_session::output::check_writable`]; reserves stdout if that is the place.
pub fn check_writable(path: &Path) -> Outcome {
    match Destination::of(path) {
        Ok(Destination::Stdout) => stdout::reserve(),
        _ => edgecut_session::output::check_writable(path),
    }
}

/// Refuses what is not a folder where `flag` wants one, which may not exist yet.
pub fn check_folder(flag: &str, path: &Path) -> Outcome {
    match Destination::of(path) {
        Ok(Destination::File(file)) if !file.exists() => Ok(()),
        Ok(_) => {
            let what = format!("{flag} {}: several files are written: name a folder", path.display());
            Err(Failure::BadInput(Message::from(what)))
        }
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(()),
        Err(error) => Err(Failure::unwritable(path, &error)),
    }
}

/// Makes the folder at `path`, if it is missing.
pub fn create_folder(path: &Path) -> Outcome {
    std::fs::create_dir_all(path).map_err(|error| Failure::unwritable(path, &error))
}
