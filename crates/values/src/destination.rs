//! What a path that is written to leads to: a file, which is replaced as a whole, or a stream, which is written in place.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Where the bytes for a path go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// The standard output: `-`, or a name that the system has for it.
    Stdout,
    /// A regular file, or none yet: the one that links lead to.
    File(PathBuf),
    /// A device, FIFO or socket, which must not be replaced.
    Stream(PathBuf),
}

/// Names of the standard output.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// The folder whose links stand for files that are open, and not for their names.
const OPEN_FILES: &str = "/proc";

/// Links that lead to one another are followed as far as Linux does.
const MOST_LINKS: usize = 40;

impl Destination {
    /// Finds out what is at `path`. Opens nothing.
    ///
    /// # Errors
    /// [`io::ErrorKind::IsADirectory`] of a folder; else if what is there cannot be looked at.
    pub fn of(path: &Path) -> io::Result<Destination> {
        if STDOUT.iter().any(|name| path.as_os_str() == *name) {
            return Ok(Destination::Stdout);
        }
        let kind = match fs::metadata(path) {
            // Nothing, or a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            about => Some(about?.file_type()),
        };
        match kind {
            Some(kind) if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Some(kind) if !kind.is_file() => Ok(Destination::Stream(path.to_path_buf())),
            _ => followed(path),
        }
    }

    /// Whether a file appears under a name, next to which others can lie.
    pub fn is_file(&self) -> bool {
        matches!(self, Destination::File(_))
    }
}

/// The folder of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The file that `path` leads to through links; it may not exist.
fn followed(path: &Path) -> io::Result<Destination> {
    let mut at = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(to) = fs::read_link(&at) else { return Ok(Destination::File(at)) };
        let folder = folder(&at);
        refuse_planted(&at, folder)?;
        if folder.canonicalize().is_ok_and(|folder| folder.starts_with(OPEN_FILES)) {
            return Ok(Destination::Stream(path.to_path_buf()));
        }
        at = folder.join(to);
    }
    Err(io::Error::other("too many links lead to one another"))
}

/// Refuses a link that somebody else has put into a folder where everybody may write, as the system does where it opens files
/// itself (`fs.protected_symlinks`): it would choose which of the user's files is replaced.
#[cfg(unix)]
fn refuse_planted(link: &Path, folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    const SHARED: u32 = 0o1002;
    let (link, folder) = (fs::symlink_metadata(link)?, fs::metadata(folder)?);
    let is_own = link.uid() == rustix::process::geteuid().as_raw() || link.uid() == folder.uid();
    match folder.mode() & SHARED == SHARED && !is_own {
        true => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is somebody else's link in a shared folder")),
        false => Ok(()),
    }
}

#[cfg(not(unix))]
fn refuse_planted(_: &Path, _: &Path) -> io::Result<()> {
    Ok(())
}

/// Writes all of `content` to the stream at `path`. Waits for the reader of a FIFO.
///
/// # Errors
/// If it cannot be opened, or takes no more.
pub(crate) fn write_stream(path: &Path, content: &[u8]) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::{fs::FileTypeExt, net::UnixStream};
        if fs::metadata(path)?.file_type().is_socket() {
            return UnixStream::connect(path)?.write_all(content);
        }
    }
    // What an open file has so far stays.
    let mut stream = OpenOptions::new().append(true).open(path)?;
    stream.write_all(content)?;
    stream.flush()
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_and_streams_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let of = |path: &Path| Destination::of(path).unwrap();
        fs::create_dir(at("inside")).unwrap();
        symlink("inside/file", at("link")).unwrap();
        symlink("link", at("second")).unwrap();
        for _ in 0..2 {
            assert_eq!(of(&at("second")), Destination::File(at("inside/file")), "there or not");
            fs::write(at("inside/file"), "x").unwrap();
        }
        symlink("/dev/null", at("device")).unwrap();
        assert_eq!(of(&at("device")), Destination::Stream(at("device")));
        assert_eq!(of(Path::new("-")), Destination::Stdout);
        assert_eq!(Destination::of(&at("inside")).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        symlink("round", at("round")).unwrap();
        assert!(Destination::of(&at("round")).is_err());
    }

    #[test]
    fn an_open_file_is_written_in_place() {
        use std::os::fd::AsRawFd;
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "before ").unwrap();
        let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_file().as_raw_fd()));
        if open.exists() {
            assert_eq!(Destination::of(&open).unwrap(), Destination::Stream(open.clone()));
            write_stream(&open, b"after").unwrap();
            assert_eq!(fs::read_to_string(file.path()).unwrap(), "before after");
        }
    }
}
