//! Contents in unnamed files, mapped into memory: under memory pressure the system takes their pages back, and reads
//! them again when they are needed. A content on the heap would stay in memory for as long as something refers to it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;
use memmap2::Mmap;

/// Offsets in a file are multiples of this, the widest alignment that kernels ask for.
const ALIGNMENT: usize = 64;

/// An unnamed, memory-mapped file of contents. It lives as long as a handle or one of the contents.
#[derive(Debug, Clone)]
pub struct StoredFile(Arc<Mapping>);

/// The memory that a file is mapped to.
#[derive(Debug)]
struct Mapping {
    bytes: Mmap,
    is_in_memory: bool,
}

/// The mapped files of this process, by address.
static MAPPINGS: Mutex<BTreeMap<usize, Weak<Mapping>>> = Mutex::new(BTreeMap::new());

impl StoredFile {
    /// Writes `contents` to a new file, and returns them as parts of its mapping.
    ///
    /// # Errors
    /// If no temporary file can be written or mapped.
    pub fn write<'c>(contents: impl IntoIterator<Item = &'c [u8]>) -> io::Result<(StoredFile, Vec<Bytes>)> {
        let mut file = temporary_file()?;
        let (mut ranges, mut at) = (Vec::new(), 0usize);
        let mut writer = BufWriter::new(&mut file);
        for content in contents {
            let start = at.next_multiple_of(ALIGNMENT);
            writer.write_all(&[0; ALIGNMENT][..start - at])?;
            writer.write_all(content)?;
            at = start + content.len();
            ranges.push(start..at);
        }
        writer.flush()?;
        drop(writer);
        // SAFETY: the file has no name and this is its only handle, so that nothing changes it.
        let bytes = unsafe { Mmap::map(&file) }?;
        let mapping = Arc::new(Mapping { bytes, is_in_memory: is_in_memory(&file) });
        mappings().insert(mapping.address(), Arc::downgrade(&mapping));
        let whole = Bytes::from_owner(Owner(Arc::clone(&mapping)));
        Ok((StoredFile(mapping), ranges.into_iter().map(|range| whole.slice(range)).collect()))
    }

    /// The file that `content` is a part of, if it is in one, and aligned as its contents are.
    pub fn of(content: &[u8]) -> Option<StoredFile> {
        let address = content.as_ptr() as usize;
        let mapping = mappings().range(..=address).next_back()?.1.upgrade()?;
        let is_inside = address + content.len() <= mapping.address() + mapping.bytes.len();
        (is_inside && !content.is_empty() && address.is_multiple_of(ALIGNMENT)).then_some(StoredFile(mapping))
    }

    /// Whether it takes memory: its file system has no disk.
    pub fn is_in_memory(&self) -> bool {
        self.0.is_in_memory
    }

    /// Gives the pages back to the system, which reads those from the file that are needed again.
    pub fn release(&self) {
        #[cfg(unix)]
        // SAFETY: the mapping is shared and the file unchanged: a page that is read later has the same content. An error
        // means that the pages stay, which costs memory alone.
        let _ = unsafe { self.0.bytes.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
    }
}

impl PartialEq for StoredFile {
    /// Whether both are the same file.
    fn eq(&self, other: &StoredFile) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Mapping {
    fn address(&self) -> usize {
        self.bytes.as_ptr() as usize
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Before the memory is unmapped: no other file has this address yet.
        mappings().remove(&self.address());
    }
}

/// A mapping as the owner of bytes.
struct Owner(Arc<Mapping>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

fn mappings() -> MutexGuard<'static, BTreeMap<usize, Weak<Mapping>>> {
    MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An unnamed file in `TMPDIR`, else in `/var/tmp`, as `/tmp` may be tmpfs. If that fails, in the default temporary folder.
fn temporary_file() -> io::Result<File> {
    let folder = match std::env::var_os("TMPDIR") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new("/var/tmp").to_path_buf(),
    };
    tempfile::tempfile_in(folder).or_else(|_| tempfile::tempfile())
}

/// Whether `file` is in a file system that is in memory, by the numbers of `statfs(2)`.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &File) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|status| [TMPFS, RAMFS].contains(&(status.f_type as u32)))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_: &File) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_in_a_file_as_long_as_one_of_them_is_used() {
        let contents: [&[u8]; 3] = [&[1; 100_000], &[], &[2; 77]];
        let (file, stored) = StoredFile::write(contents).unwrap();
        for _ in 0..2 {
            assert!(stored.iter().zip(contents).all(|(stored, content)| *stored == content));
            file.release();
        }
        let found = |content: &[u8]| StoredFile::of(content).is_some_and(|of| of == file);
        assert_eq!([0, 1, 2].map(|index| found(&stored[index])), [true, false, true]);
        assert!(!found(&stored[0][1..]) && found(&stored[0][64..]), "aligned parts");
        assert!(!found(&[1; 100]), "on the heap");
        let (other, of_other) = StoredFile::write([&[3; 10][..]]).unwrap();
        assert!(other != file && StoredFile::of(&of_other[0]) == Some(other));
        let address = stored[2].as_ptr() as usize;
        drop((file, stored));
        assert!(!mappings().range(..=address).any(|(_, mapping)| {
            mapping.upgrade().is_some_and(|mapping| address < mapping.address() + mapping.bytes.len())
        }));
    }
}
