//! The log of an agent on its way to stderr, which may be a full disk, a closed pipe, or one that is not read.
//!
//! Lines are written by a thread of their own. What logs never waits and never fails: a line that cannot be written, or for
//! which there is no room, is lost and counted.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::printable::printable;

/// Lines that wait to be written.
const QUEUE_LENGTH: usize = 1024;

/// Longest line; what is beyond is cut off.
const MAX_LINE: usize = 16 << 10;

/// How often it is looked whether a full queue has room for what waits for its end.
const FLUSH_POLL: Duration = Duration::from_millis(5);

/// Takes a line of the log with each call of [`Write::write`].
#[derive(Debug, Clone)]
pub struct LogQueue {
    entries: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    /// Answered when all lines before are written.
    Flush(SyncSender<()>),
}

impl LogQueue {
    /// A queue of lines that are written to `target`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(target: impl Write + Send + 'static) -> io::Result<LogQueue> {
        let (entries, received) = sync_channel(QUEUE_LENGTH);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        thread::Builder::new().name("log".into()).spawn(move || write_all(target, &received, &counter))?;
        Ok(LogQueue { entries, lost })
    }

    /// Lines that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until what was logged is written, for `patience` at most.
    pub fn flush(&self, patience: Duration) {
        let (done, written) = sync_channel(1);
        let deadline = Instant::now() + patience;
        // A reader that takes nothing keeps no agent from ending.
        while self.entries.try_send(Entry::Flush(done.clone())).is_err() {
            if Instant::now() >= deadline {
                return;
            }
            thread::sleep(FLUSH_POLL);
        }
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let is_cut = text.len() > MAX_LINE;
        // What clients sent may be in it: it begins no other line.
        let mut kept = printable(&text[..text.floor_char_boundary(MAX_LINE)]).into_owned().into_bytes();
        kept.extend_from_slice(if is_cut { "…\n" } else { "\n" }.as_bytes());
        if self.entries.try_send(Entry::Line(kept)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(mut target: impl Write, received: &Receiver<Entry>, lost: &AtomicU64) {
    for entry in received {
        match entry {
            Entry::Line(line) => {
                if target.write_all(&line).and_then(|()| target.flush()).is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            // The caller may have lost patience.
            Entry::Flush(done) => drop(done.try_send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, io::Read};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn lines_are_written_in_order() {
        let mut file = tempfile::tempfile().unwrap();
        let mut log = LogQueue::start(file.try_clone().unwrap()).unwrap();
        log.write_all(b"one\nfor\x1bged\n").unwrap();
        log.write_all(&[b'x'; 2 * MAX_LINE]).unwrap();
        LogQueue::flush(&log, LONG);
        let mut text = String::new();
        io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("one\\nfor\\u{1b}ged\nxxx") && text.ends_with("x…\n") && text.len() < MAX_LINE + 64);
        assert_eq!(log.lost(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_full_disk_does_not_take_is_counted() {
        let mut log = LogQueue::start(File::options().write(true).open("/dev/full").unwrap()).unwrap();
        for _ in 0..3 {
            log.write_all(b"line\n").unwrap();
        }
        LogQueue::flush(&log, LONG);
        assert_eq!(log.lost(), 3);
    }

    #[test]
    fn a_pipe_that_is_not_read_stops_no_one() {
        let (reader, writer) = io::pipe().unwrap();
        let mut log = LogQueue::start(writer).unwrap();
        let lines = 4 * QUEUE_LENGTH as u64;
        for _ in 0..lines {
            log.write_all(&[b'x'; 1024]).unwrap();
        }
        LogQueue::flush(&log, Duration::from_millis(1));
        assert!(log.lost() > 0 && log.lost() < lines, "{} of {lines}", log.lost());
        drop(reader);
    }
}
