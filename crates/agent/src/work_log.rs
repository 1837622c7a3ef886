//! What each device is computing: one overwritten entry per device, in memory that outlives the worker. If an engine kills
//! the worker, the [`Supervisor`](super::Supervisor) reads the entries.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

/// Bytes of an entry. Longer texts are cut.
const ENTRY_SIZE: usize = 512;

/// Maximum number of devices that are recorded.
const MAX_DEVICES: usize = 64;

/// A log of what is under way; one that keeps nothing by default.
#[derive(Debug, Clone, Default)]
pub struct WorkLog {
    file: Option<Arc<File>>,
}

/// The part of one device: who uses it, and what it computes.
#[derive(Debug, Clone, Default)]
pub(super) struct DeviceLog {
    file: Option<Arc<File>>,
    begin: u64,
}

impl WorkLog {
    /// A log in `file`, which no other process writes.
    pub fn new(file: File) -> WorkLog {
        WorkLog { file: Some(Arc::new(file)) }
    }

    pub(super) fn of_device(&self, index: usize) -> DeviceLog {
        // After the entry that says whether the agent serves.
        let begin = ((1 + 2 * index) * ENTRY_SIZE) as u64;
        DeviceLog { file: self.file.clone().filter(|_| index < MAX_DEVICES), begin }
    }

    /// Notes that the agent serves.
    pub fn set_serving(&self) {
        write(self.file.as_deref(), 0, b"serving");
    }

    /// Whether the agent has served.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn has_served(&self) -> io::Result<bool> {
        Ok(!entries(self.file.as_deref())?.first().is_none_or(String::is_empty))
    }

    /// What is under way: by device, who uses it and what it computes.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn under_way(&self) -> io::Result<Vec<String>> {
        let entries = entries(self.file.as_deref())?;
        let devices = entries.get(1..).unwrap_or_default().chunks(2);
        let busy = devices.filter_map(|device| match device {
            [user, work] if !work.is_empty() => Some(format!("{user}: {work}")),
            _ => None,
        });
        Ok(busy.collect())
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn clear(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.set_len(0))
    }
}

impl DeviceLog {
    /// Whether anything is kept.
    pub fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Who uses the device.
    pub fn set_user(&self, user: &str) {
        write(self.file.as_deref(), self.begin, &entry(user));
    }

    /// What the device computes until the guard is dropped: a text of [`entry`].
    #[must_use]
    pub fn begin(&self, work: &[u8]) -> WorkGuard<'_> {
        self.set_work(work);
        WorkGuard(self)
    }

    fn set_work(&self, work: &[u8]) {
        write(self.file.as_deref(), self.begin + ENTRY_SIZE as u64, work);
    }
}

/// Clears the entry when dropped, so also on a panic.
pub(super) struct WorkGuard<'a>(&'a DeviceLog);

impl WorkGuard<'_> {
    /// What the device computes next.
    pub fn next(&self, work: &[u8]) {
        self.0.set_work(work);
    }
}

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        self.0.set_work(&[0]);
    }
}

/// `text` as it is written.
pub(super) fn entry(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes()[..text.floor_char_boundary(ENTRY_SIZE - 1)].to_vec();
    bytes.push(0);
    bytes
}

fn write(file: Option<&File>, at: u64, bytes: &[u8]) {
    // Best effort: if the write fails, a crash is reported without what was being computed.
    let _ = file.map(|file| file.write_all_at(bytes, at));
}

fn entries(file: Option<&File>) -> io::Result<Vec<String>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let length = file.metadata()?.len().min(((1 + 2 * MAX_DEVICES) * ENTRY_SIZE) as u64) as usize;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    let text = |entry: &[u8]| {
        let end = entry.iter().position(|byte| *byte == 0).unwrap_or(entry.len());
        String::from_utf8_lossy(&entry[..end]).into_owned()
    };
    Ok(bytes.chunks(ENTRY_SIZE).map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_read_by_another() {
        let file = tempfile::tempfile().unwrap();
        let (log, other) = (WorkLog::new(file.try_clone().unwrap()), WorkLog::new(file));
        assert!(!other.has_served().unwrap() && other.under_way().unwrap().is_empty());
        log.set_serving();
        let (first, second) = (log.of_device(0), log.of_device(1));
        first.set_user("the run of a");
        let work = first.begin(&entry("computing nn.conv2d"));
        second.set_user("the profile of b");
        assert!(other.has_served().unwrap());
        assert_eq!(other.under_way().unwrap(), ["the run of a: computing nn.conv2d"]);
        let long = second.begin(&entry(&"ä".repeat(ENTRY_SIZE)));
        let texts = other.under_way().unwrap();
        assert!(texts[1].starts_with("the profile of b: ä") && texts[1].ends_with('ä'), "cut between characters");
        work.next(&entry("computing nn.relu"));
        assert_eq!(other.under_way().unwrap()[0], "the run of a: computing nn.relu");
        drop((work, long));
        assert!(other.under_way().unwrap().is_empty());
        other.clear().unwrap();
        assert!(!other.has_served().unwrap());
    }

    #[test]
    fn an_embedded_agent_keeps_nothing() {
        let log = WorkLog::default();
        log.set_serving();
        let device = log.of_device(0);
        let _work = device.begin(&entry("computing"));
        assert!(!device.is_kept() && log.under_way().unwrap().is_empty());
    }
}
