//! The lock that makes measurements of all processes on this machine take turns.
//!
//! Two processes that measure at once disturb each other, also where each keeps to its own cores by chance only. Every
//! processor that a process may run on has a file, which is locked while something is measured: exclusively for the
//! times of operators, shared for those of links, both ends of which may be on one machine. A process that fails to take
//! one lock releases all and tries again, so processes cannot deadlock. The system unlocks those of a process that ends.

use std::{
    env,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Held while something is measured; dropping it lets others measure.
#[derive(Debug)]
pub(super) struct MeasurementLock {
    _files: Vec<File>,
}

/// Who else may hold the lock meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    Exclusive,
    Shared,
}

/// The processors whose files are locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Processors {
    /// Those that this process may run on.
    Own,
    /// All of this machine: dilated agents stand for machines that share no caches and no memory.
    All,
}

/// How often a lock that another process holds is tried.
const RETRY: Duration = Duration::from_millis(50);
/// How long [`MeasurementLock::soon`] waits.
const TIMEOUT: Duration = Duration::from_secs(30);

impl MeasurementLock {
    /// Waits for the lock of `processors`. `is_waiting` is called with the holder, over and over while there is one, and
    /// returns whether to go on waiting. Where files cannot be locked, measurements are not kept apart, and this says so
    /// in the log.
    ///
    /// # Errors
    /// The holder, if `is_waiting` gave up.
    pub fn of_processors(
        processors: Processors,
        sharing: Sharing,
        is_waiting: impl FnMut(&str) -> bool,
    ) -> Result<MeasurementLock, HolderName> {
        MeasurementLock::of(&processors.files(&env::temp_dir()), sharing, is_waiting)
    }

    /// The same for a task of tokio's, with a wait of at most half a minute.
    ///
    /// # Errors
    /// The holder, after that time.
    pub async fn soon(sharing: Sharing) -> Result<MeasurementLock, HolderName> {
        let begin = Instant::now();
        let waiting = move || MeasurementLock::of_processors(Processors::Own, sharing, |_| begin.elapsed() < TIMEOUT);
        let lock = tokio::task::spawn_blocking(waiting).await;
        lock.unwrap_or_else(|_| Ok(MeasurementLock { _files: Vec::new() }))
    }

    fn of(
        paths: &[PathBuf],
        sharing: Sharing,
        mut is_waiting: impl FnMut(&str) -> bool,
    ) -> Result<MeasurementLock, HolderName> {
        loop {
            match MeasurementLock::try_acquire(paths, sharing) {
                Ok(lock) => return Ok(lock),
                Err(holder) if !is_waiting(&holder) => return Err(holder),
                // Holding no lock, which avoids deadlocks.
                Err(_) => thread::sleep(RETRY),
            }
        }
    }

    /// Takes all locks, or returns the holder of the first that is taken.
    fn try_acquire(paths: &[PathBuf], sharing: Sharing) -> Result<MeasurementLock, HolderName> {
        let mut files = Vec::new();
        for path in paths {
            let tried = open(path).and_then(|file| {
                let tried = match sharing {
                    Sharing::Exclusive => file.try_lock(),
                    Sharing::Shared => file.try_lock_shared(),
                };
                match tried {
                    Ok(()) => Ok(Ok(file)),
                    Err(TryLockError::WouldBlock) => Ok(Err(holder(&file))),
                    Err(TryLockError::Error(error)) => Err(error),
                }
            });
            match tried {
                Ok(file) => files.push(file?),
                Err(error) => {
                    tracing::warn!("measurements of other processes are not kept apart: {}: {error}", path.display());
                }
            }
        }
        Ok(MeasurementLock { _files: files })
    }
}

/// The process that holds a lock, for messages.
type HolderName = String;

impl Processors {
    /// Those of a measurement by an agent that `is_dilated` or not.
    pub fn of_agent(is_dilated: bool) -> Processors {
        if is_dilated { Processors::All } else { Processors::Own }
    }

    /// Their files, in ascending order.
    fn files(self, folder: &Path) -> Vec<PathBuf> {
        let own = || {
            let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(processors)
        };
        let all = || processors(&fs::read_to_string("/sys/devices/system/cpu/online").ok()?);
        let numbers = match self {
            Processors::Own => own(),
            Processors::All => all().or_else(own),
        };
        // One file stands for all processors of a system that lists none.
        let numbers = numbers.unwrap_or_else(|| vec![0]);
        numbers.into_iter().map(|number| folder.join(format!("edgecut-cpu{number}.lock"))).collect()
    }
}

/// The numbers in a list as `0-3,8`.
fn processors(list: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(numbers)
}

/// Opens a file that another user may have made, and only they may write.
fn open(path: &Path) -> io::Result<File> {
    match open_existing(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match File::create_new(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => open_existing(path),
            made => made,
        },
        opened => opened,
    }
}

/// Opens a regular file. Anybody can make others in a folder for temporary files, such as a FIFO, which opens when another
/// process writes to it.
fn open_existing(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.read(true).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file: remove it")),
    }
}

/// The process that holds a lock on `file`, for messages.
#[cfg(target_os = "linux")]
fn holder(file: &File) -> String {
    use std::os::unix::fs::MetadataExt;
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    file.metadata().map_or_else(|_| UNKNOWN.to_string(), |metadata| holder_in(&locks, metadata.ino()))
}

#[cfg(not(target_os = "linux"))]
fn holder(_file: &File) -> String {
    UNKNOWN.to_string()
}

const UNKNOWN: &str = "another process";

/// The first process that holds a lock on the file `inode`, by the contents of `/proc/locks`: lines of
/// `1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF`.
fn holder_in(locks: &str, inode: u64) -> String {
    let holder = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, file, ..] = fields[..] else { return None };
        (file.rsplit(':').next()?.parse() == Ok(inode)).then(|| process.parse::<u32>().ok())?
    });
    holder.map_or_else(|| UNKNOWN.to_string(), |process| format!("process {process}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_locks_take_turns_and_shared_ones_do_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..2).map(|n| folder.path().join(format!("{n}.lock"))).collect();
        let at_once = |paths: &[PathBuf], sharing| MeasurementLock::of(paths, sharing, |_| false);
        for (held, wanted, is_free) in [
            (Sharing::Exclusive, Sharing::Exclusive, false),
            (Sharing::Exclusive, Sharing::Shared, false),
            (Sharing::Shared, Sharing::Exclusive, false),
            (Sharing::Shared, Sharing::Shared, true),
        ] {
            let lock = at_once(&paths, held).unwrap();
            assert_eq!(at_once(&paths[1..], wanted).is_ok(), is_free, "{held:?} {wanted:?}");
            let mut holders = Vec::new();
            let waiting = MeasurementLock::of(&paths, wanted, |holder| {
                holders.push(holder.to_string());
                holders.len() < 3
            });
            assert_eq!((waiting.is_ok(), holders.len()), if is_free { (true, 0) } else { (false, 3) });
            assert!(holders.iter().all(|holder| *holder == format!("process {}", std::process::id())), "{holders:?}");
            drop((lock, waiting));
            assert!(at_once(&paths, Sharing::Exclusive).is_ok());
        }
    }

    #[test]
    fn waiting_holds_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..2).map(|n| folder.path().join(format!("{n}.lock"))).collect();
        let held = MeasurementLock::of(&paths[1..], Sharing::Exclusive, |_| false).unwrap();
        let mut first = None;
        let waited = MeasurementLock::of(&paths, Sharing::Exclusive, |_| {
            first = MeasurementLock::of(&paths[..1], Sharing::Exclusive, |_| false).ok();
            false
        });
        assert!(waited.is_err() && first.is_some());
        drop(held);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_processors_are_those_of_this_process_and_more() {
        let files = |of: Processors| of.files(Path::new("/tmp"));
        let all = files(Processors::All);
        assert!(files(Processors::Own).iter().all(|file| all.contains(file)), "{all:?}");
    }

    #[test]
    fn one_that_waits_gets_the_lock_when_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("0.lock")];
        let mut held = MeasurementLock::of(&paths, Sharing::Exclusive, |_| false).ok();
        assert!(held.is_some());
        let lock = MeasurementLock::of(&paths, Sharing::Exclusive, |_| {
            held = None;
            true
        });
        assert!(lock.is_ok());
    }

    #[test]
    fn in_a_folder_that_is_missing_there_is_nothing_to_wait_for() {
        let paths = [PathBuf::from("/nowhere/0.lock")];
        assert!(MeasurementLock::of(&paths, Sharing::Exclusive, |_| false).is_ok());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.lock");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(open(&path).unwrap_err().to_string().contains("not a regular file"));
        assert!(MeasurementLock::of(&[path], Sharing::Exclusive, |_| false).is_ok());
    }

    #[test]
    fn lists_of_processors_and_tables_of_locks_are_read() {
        assert_eq!(processors("\t0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!((processors("5"), processors("0-x"), processors("")), (Some(vec![5]), None, None));
        let locks =
            "1: POSIX  ADVISORY  READ 3 08:01:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 08:01:7 0 EOF\n2: -> FLOCK x";
        assert_eq!(holder_in(locks, 7), "process 12");
        assert_eq!(holder_in(locks, 8), "another process");
    }
}
