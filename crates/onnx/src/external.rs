//! Contents of tensors in other files of the model's folder.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Component, Path, PathBuf},
};

use bytes::Bytes;

use crate::{
    error::{Result, shown},
    proto::TensorProto,
};

/// Of each file, at most this many times its length is read: tensors may share bytes, but a small model cannot multiply
/// them.
const MOST_TIMES: u64 = 2;

/// The files that a model names, each read where tensors lie in it.
#[derive(Debug, Default)]
pub(crate) struct ExternalFiles {
    /// The model's; `None` if the model is not a file.
    folder: Option<PathBuf>,
    regions: RefCell<HashMap<Region, Bytes>>,
    /// By path: bytes read.
    read: RefCell<HashMap<PathBuf, u64>>,
}

/// Bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Region {
    path: PathBuf,
    offset: u64,
    count: u64,
}

impl ExternalFiles {
    pub fn of(folder: Option<&Path>) -> ExternalFiles {
        ExternalFiles { folder: folder.map(Path::to_path_buf), ..ExternalFiles::default() }
    }

    /// The content of a tensor with external data. Tensors of the same bytes share them.
    ///
    /// # Errors
    /// If they lie outside the folder, or the file does not have them.
    pub fn content(&self, tensor: &TensorProto) -> Result<Bytes> {
        let entry = |key: &str| {
            tensor.external_data.iter().find(|e| e.key.as_deref() == Some(key)).and_then(|e| e.value.as_deref())
        };
        let number = |key: &str| match entry(key) {
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| format!("external data: {key} `{}` is not a number", shown(text))),
            None => Ok(None),
        };
        let path = self.path(entry("location").ok_or("external data without a location")?)?;
        let error = |error: std::io::Error| format!("external data in {}: {error}", path.display());
        let about = std::fs::metadata(&path).map_err(error)?;
        if !about.is_file() {
            return Err(format!("external data in {}: it is not a file", path.display()));
        }
        let (length, offset) = (about.len(), number("offset")?.unwrap_or(0));
        let rest = length.checked_sub(offset);
        let count = number("length")?.or(rest).unwrap_or(0);
        if rest.is_none_or(|rest| count > rest) {
            return Err(format!("{}: {count} bytes from {offset} are needed, the file has {length}", path.display()));
        }
        let region = Region { path: path.clone(), offset, count };
        if let Some(known) = self.regions.borrow().get(&region) {
            return Ok(known.clone());
        }
        self.charge(&region, length)?;
        let mut file = File::open(&path).map_err(error)?;
        file.seek(SeekFrom::Start(offset)).map_err(error)?;
        let mut content = Vec::new();
        file.take(count).read_to_end(&mut content).map_err(error)?;
        let content = Bytes::from(content);
        self.regions.borrow_mut().insert(region, content.clone());
        Ok(content)
    }

    fn path(&self, location: &str) -> Result<PathBuf> {
        let shown = shown(location);
        let folder =
            self.folder.as_ref().ok_or_else(|| format!("external data in `{shown}`, and the model is not a file"))?;
        let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        match Path::new(location).components().all(is_inside) {
            true => Ok(folder.join(location)),
            false => Err(format!("external data in `{shown}`: it must lie in the folder of the model")),
        }
    }

    fn charge(&self, region: &Region, length: u64) -> Result<()> {
        let mut read = self.read.borrow_mut();
        let read = read.entry(region.path.clone()).or_default();
        *read = read.saturating_add(region.count);
        match *read > length.saturating_mul(MOST_TIMES) {
            true => Err(format!("{}: tensors overlap in more than {MOST_TIMES} layers", region.path.display())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::StringStringEntryProto;

    #[test]
    fn regions_are_read_once_and_no_file_many_times() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w.bin"), (0..8).collect::<Vec<u8>>()).unwrap();
        let files = ExternalFiles::of(Some(folder.path()));
        let read = |files: &ExternalFiles, location: &str, offset: &str, length: &str| {
            let entry = |(key, value): (&str, &str)| StringStringEntryProto {
                key: Some(key.to_string()),
                value: Some(value.to_string()),
            };
            let entries = [("location", location), ("offset", offset), ("length", length)];
            let external_data = entries.into_iter().filter(|(_, value)| !value.is_empty()).map(entry).collect();
            files.content(&TensorProto { external_data, ..TensorProto::default() })
        };
        for _ in 0..9 {
            assert_eq!(&read(&files, "w.bin", "2", "3").unwrap()[..], [2, 3, 4]);
        }
        assert_eq!(read(&files, "./w.bin", "", "").unwrap().len(), 8);
        for (location, offset, length, part) in [
            ("w.bin", "1", "", "overlap in more than 2 layers"),
            ("w.bin", "7", "2", "the file has 8"),
            ("w.bin", "-1", "2", "is not a number"),
            ("../w.bin", "", "", "must lie in the folder"),
            (".", "", "", "is not a file"),
            ("v.bin", "", "", "v.bin"),
        ] {
            let error = read(&files, location, offset, length).unwrap_err();
            assert!(error.contains(part), "{location}: {error}");
        }
        let error = read(&ExternalFiles::of(None), "w.bin", "", "").unwrap_err();
        assert!(error.contains("the model is not a file"), "{error}");
    }
}
