//! Files that several processes use: written completely or not at all, and by one at a time.

use std::{
    fs::{self, File},
    io::{self, Cursor, Seek, Write},
    path::Path,
};

use crate::destination::{Destination, folder, write_stream};

/// What [`write_atomic`] hands out to be filled.
pub trait Sink: Write + Seek {}

impl<S: Write + Seek> Sink for S {}

/// Writes a temporary file next to the one that `path` leads to, waits until it is on disk and renames it, so that no reader sees
/// a partial file, not even after a power failure. Creates missing folders. The file gets default permissions. Devices, FIFOs,
/// sockets and the standard output get the same bytes in place, all at once.
///
/// # Errors
/// If the folder or the file cannot be created, or the error of `fill`; a file is then unchanged.
/// [`io::ErrorKind::IsADirectory`] if `path` is a folder.
pub fn write_atomic<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Sink) -> Result<(), E>,
) -> Result<(), E> {
    // Reduced by the umask of the process.
    write(path, 0o666, fill)
}

/// The same for a file that only its owner may read, such as a private key.
///
/// # Errors
/// As [`write_atomic`].
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    write(path, 0o600, |file| file.write_all(content))
}

/// Writes a file with these permissions, where the system has them.
fn write<E: From<io::Error>>(
    path: &Path,
    #[cfg_attr(not(unix), expect(unused_variables))] mode: u32,
    fill: impl FnOnce(&mut dyn Sink) -> Result<(), E>,
) -> Result<(), E> {
    let path = match Destination::of(path)? {
        Destination::File(path) => path,
        Destination::Stream(path) => return Ok(write_stream(&path, &filled(fill)?)?),
        Destination::Stdout => {
            let content = filled(fill)?;
            let mut out = io::stdout().lock();
            return Ok(out.write_all(&content).and_then(|()| out.flush())?);
        }
    };
    let folder = folder(&path);
    fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(mode));
    }
    let mut temporary = builder.tempfile_in(folder).map_err(without_name)?;
    fill(temporary.as_file_mut())?;
    temporary.flush()?;
    temporary.as_file().sync_all()?;
    temporary.persist(&path).map_err(|error| error.error)?;
    Ok(())
}

/// What `fill` writes.
fn filled<E>(fill: impl FnOnce(&mut dyn Sink) -> Result<(), E>) -> Result<Vec<u8>, E> {
    let mut content = Cursor::new(Vec::new());
    fill(&mut content)?;
    Ok(content.into_inner())
}

/// Exclusive use of the files in the folder of `path` among processes that ask for it, until dropped. Waits for the process that
/// has it. The folder itself is locked, since files in it are replaced; it is created if it is missing. On a system
/// where folders cannot be locked there is no lock. Must not be asked for twice at a time by one thread.
///
/// # Errors
/// If the folder cannot be created.
pub fn lock(path: &Path) -> io::Result<FileLock> {
    let path = match Destination::of(path) {
        Ok(Destination::File(file)) => file,
        _ => path.to_path_buf(),
    };
    let folder = folder(&path);
    fs::create_dir_all(folder)?;
    let folder = File::open(folder).ok().filter(|folder| folder.lock().is_ok());
    Ok(FileLock { _folder: folder })
}

/// What [`lock`] returns.
#[derive(Debug)]
pub struct FileLock {
    _folder: Option<File>,
}

/// `error` without the name of a temporary file, which says nothing to the user.
fn without_name(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(std::error::Error::source).and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.and_then(io::Error::raw_os_error).map_or(error, io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/count");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let _lock = lock(&path).unwrap();
                        let count = fs::read_to_string(&path).map_or(0, |text| text.parse().unwrap());
                        fs::write(&path, (count + 1).to_string()).unwrap();
                    }
                });
            }
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "100");
    }

    #[test]
    fn a_file_is_complete_or_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file");
        write_atomic(&path, |file| file.write_all(b"first")).unwrap();
        let failed = write_atomic(&path, |file| file.write_all(b"sec").and(Err(io::Error::other("no more"))));
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left over");
        let inside = write_atomic(&path.join("file"), |file| file.write_all(b"")).unwrap_err();
        assert!(!inside.to_string().contains(".tmp"), "{inside}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let link = folder.path().join("link");
            std::os::unix::fs::symlink("new/file", &link).unwrap();
            write_atomic(&link, |file| file.write_all(b"second")).unwrap();
            assert!(link.is_symlink());
            assert_eq!(fs::read(&path).unwrap(), b"second");
            let plain = folder.path().join("plain");
            fs::write(&plain, "").unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode(&path), mode(&plain));
        }
    }
}
