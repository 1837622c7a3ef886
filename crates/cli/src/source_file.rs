//! Files that are named on the command line.

use std::{io, path::Path};

use edgecut_session::output::{self, Sink};
pub use edgecut_session::{
    input::read,
    output::{check_folder, create_folder, is_file},
};

use super::{Failure, Outcome, stderr::notice, stdout};

/// Writes `content` to where `path` leads: a file appears whole, a stream is written in place, `-` is stdout.
pub fn write(path: &Path, content: &[u8]) -> Outcome {
    write_with(path, |file| file.write_all(content))
}

/// Writes what `fill` does, as [`write`].
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Sink) -> io::Result<()>) -> Outcome {
    if output::is_stdout(path) {
        let mut content = io::Cursor::new(Vec::new());
        fill(&mut content).map_err(|error| Failure::unwritable(path, &error))?;
        stdout::write(content.get_ref());
        return Ok(());
    }
    output::write_with(path, fill)
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
    reserve_stdout(path)?;
    output::check_writable(path)
}

/// Reserves stdout if `path` leads there.
pub fn reserve_stdout(path: &Path) -> Outcome {
    if output::is_stdout(path) { stdout::reserve() } else { Ok(()) }
}
