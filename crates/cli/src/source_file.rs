//! Files that are named on the command line.

use std::{io, path::Path, sync::LazyLock};

use miette::Report;

use super::{Failure, Outcome, caller::notice, stdout};
use edgecut_cluster::agent::total_memory;
use edgecut_graph::units::Bytes;
use edgecut_values::{
    destination::Destination,
    files::{Sink, write_atomic},
    input_file,
};

/// Writes `content` to where `path` leads: a file appears whole, a stream is written in place, `-` is stdout.
pub fn write(path: &Path, content: &[u8]) -> Outcome {
    write_with(path, |file| file.write_all(content))
}

/// Writes what `fill` does, as [`write`].
pub fn write_with(path: &Path, fill: impl FnOnce(&mut dyn Sink) -> io::Result<()>) -> Outcome {
    if let Ok(Destination::Stdout) = Destination::of(path) {
        let mut content = io::Cursor::new(Vec::new());
        fill(&mut content).map_err(|error| unwritable(path, &error))?;
        stdout::write(content.get_ref());
        return Ok(());
    }
    write_atomic(path, fill).map_err(|error| unwritable(path, &error))
}

/// Whether `path` names a file that others can lie next to, and not a stream or stdout.
pub fn is_file(path: &Path) -> bool {
    Destination::of(path).is_ok_and(|to| to.is_file())
}

/// Tries all of `writes`, whatever becomes of those before: returns the first failure, and reports the others.
pub fn all(writes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let mut failures = writes.into_iter().filter_map(Result::err);
    let Some(first) = failures.next() else { return Ok(()) };
    failures.for_each(|failure| {
        if let Some(report) = failure.report() {
            notice!("{report}");
        }
    });
    Err(first)
}

/// Finds out whether something could be written at `path`, before work begins whose result goes there. Leaves nothing, and
/// reserves stdout if that is the place.
pub fn check_place(path: &Path) -> Outcome {
    let file = match Destination::of(path).map_err(|error| unwritable(path, &error))? {
        Destination::Stdout => return stdout::reserve(),
        Destination::Stream(_) => return Ok(()),
        Destination::File(file) => file,
    };
    // Folders that are missing are made when the file is written.
    let there =
        file.ancestors().skip(1).map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    match there.into_iter().find(|folder| folder.exists()).map(tempfile::tempfile_in) {
        Some(Err(error)) => Err(unwritable(path, &error)),
        _ => Ok(()),
    }
}

/// Refuses what is not a folder where `flag` wants one, which may not exist yet.
pub fn check_folder(flag: &str, path: &Path) -> Outcome {
    match Destination::of(path) {
        Ok(Destination::File(file)) if !file.exists() => Ok(()),
        Ok(_) => {
            let what = format!("{flag} {}: several files are written: name a folder", path.display());
            Err(Failure::BadInput(Report::msg(what)))
        }
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(()),
        Err(error) => Err(unwritable(path, &error)),
    }
}

/// Makes the folder at `path`, if it is missing.
pub fn create_folder(path: &Path) -> Outcome {
    std::fs::create_dir_all(path).map_err(|error| unwritable(path, &error))
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

/// That nothing can be written at `path`.
pub fn unwritable(path: &Path, error: &io::Error) -> Failure {
    match Destination::of(path) {
        Ok(Destination::Stdout) => Failure::unwritable("stdout", error),
        _ => Failure::unwritable(&path.display().to_string(), error),
    }
}
