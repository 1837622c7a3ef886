//! Files that others provide: the kind is checked before a file is opened, the size before it is read.
//!
//! A FIFO blocks the process that opens it, a device may never end, and a sparse file of a few bytes on disk may be larger than
//! any memory. Descriptors of the process itself, such as `/dev/stdin` and what shells substitute for `<(command)`, may be
//! pipes and terminals: they are open already.

use std::{
    fs::{File, FileType, OpenOptions},
    io::{self, IsTerminal, Read},
    path::Path,
};

use edgecut_graph::units::Bytes;
use memmap2::Mmap;

/// Most bytes of a file that people write: a cluster file, a configuration, a certificate.
pub const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// Most bytes of a table: profiles, links, results.
pub const MAX_TABLE_BYTES: u64 = 1 << 30;

/// Names of the process's own descriptors.
const DESCRIPTORS: [&str; 3] = ["/dev/stdin", "/dev/fd/", "/proc/self/fd/"];

/// Opens the regular file at `path`, or a descriptor of this process.
///
/// # Errors
/// If it cannot be opened, or is a folder, a FIFO, a socket or a device.
pub fn open(path: &Path) -> io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && is_descriptor(path) {
        let file = File::open(path)?;
        return match is_fifo(file.metadata()?.file_type()) || file.is_terminal() {
            true => Ok(file),
            false => Err(refused(kind)),
        };
    }
    let mut options = OpenOptions::new();
    options.read(true);
    // It may be replaced by a FIFO between the check and the opening.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = match kind.is_file() {
        true => options.open(path)?,
        false => return Err(refused(kind)),
    };
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind => Err(refused(kind)),
    }
}

/// Opens the file at `path`, as [`open`] does.
///
/// # Errors
/// As [`open`], or if it has more than `limit` bytes. The size of a pipe is unknown, and not checked.
pub(crate) fn open_within(path: &Path, limit: u64) -> io::Result<File> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    if length > limit { Err(too_large(Some(length), limit)) } else { Ok(file) }
}

/// Reads the file at `path`, as [`open`] opens it.
///
/// # Errors
/// As [`open`], or if it has more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_within(path, limit)?;
    let mut content = Vec::new();
    content.try_reserve_exact(usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX))?;
    // The length of a pipe is unknown, and files grow.
    file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit { Err(too_large(None, limit)) } else { Ok(content) }
}

/// Maps the file at `path`, as [`open`] opens it, into memory. Pages are loaded on first use, and the system can evict them. The file
/// must not change while it is mapped: truncating it kills the process (SIGBUS), as with ONNX Runtime.
///
/// # Errors
/// As [`open`], or if it cannot be mapped, such as a pipe.
pub fn map(path: &Path) -> io::Result<bytes::Bytes> {
    let file = open(path)?;
    // SAFETY: sound as long as no process modifies the file, which the documentation requires.
    let mapped = unsafe { Mmap::map(&file) }?;
    Ok(bytes::Bytes::from_owner(mapped))
}

fn too_large(length: Option<u64>, limit: u64) -> io::Error {
    let what = match length {
        Some(length) => format!("its size is {}, the limit is {}", Bytes(length), Bytes(limit)),
        None => format!("it is larger than the limit of {}", Bytes(limit)),
    };
    io::Error::new(io::ErrorKind::FileTooLarge, what)
}

/// Reads the text file at `path`.
///
/// # Errors
/// As [`read`], or if it is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, limit)?);
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
}

fn is_descriptor(path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    DESCRIPTORS.iter().any(|name| if name.ends_with('/') { path.starts_with(name) } else { path == *name })
}

fn is_fifo(kind: FileType) -> bool {
    #[cfg(unix)]
    return std::os::unix::fs::FileTypeExt::is_fifo(&kind);
    #[cfg(not(unix))]
    {
        let _ = kind;
        false
    }
}

/// What a file is that has no content of its own.
fn special_kind(kind: FileType) -> Option<&'static str> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kinds = [
            (kind.is_fifo(), "a FIFO"),
            (kind.is_socket(), "a socket"),
            (kind.is_char_device() || kind.is_block_device(), "a device"),
        ];
        kinds.into_iter().find_map(|(is, name)| is.then_some(name))
    }
    #[cfg(not(unix))]
    {
        let _ = kind;
        None
    }
}

fn refused(kind: FileType) -> io::Error {
    if kind.is_dir() {
        #[cfg(unix)]
        return rustix::io::Errno::ISDIR.into();
        #[cfg(not(unix))]
        return io::ErrorKind::IsADirectory.into();
    }
    let what = format!("it is {}, expected a regular file", special_kind(kind).unwrap_or("no file"));
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_kinds_and_large_files_are_refused_before_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::os::unix::fs::symlink(path("fifo"), path("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
        std::fs::write(path("file"), "text").unwrap();
        for (path, part) in [
            (path("fifo"), "it is a FIFO, expected a regular file"),
            (path("link"), "it is a FIFO"),
            (path("socket"), "it is a socket"),
            ("/dev/zero".into(), "it is a device"),
            (folder.path().into(), "Is a directory"),
            (path("sparse"), "its size is 1024.00 GiB"),
            (path("file"), "the limit is 3 B"),
            (path("none"), "No such file"),
        ] {
            let error = read(&path, 3).unwrap_err().to_string();
            assert!(error.contains(part), "{}: {error}", path.display());
        }
        assert_eq!(read_text(&path("file"), 4).unwrap(), "text");
    }
}
