//! Contents of tensors in other files of the model's folder.

use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Component, Path, PathBuf},
};

use bytes::Bytes;
use edgecut_graph::units;
use edgecut_values::input_file;

use crate::{
    error::{Result, shown},
    proto::TensorProto,
};

/// Maximum size of a file's tensors, as a multiple of the file's length. Tensors may overlap, but a small file must not expand into a
/// large model.
const MAX_OVERLAP: u64 = 2;

/// The files that a model names, mapped into memory: what no operator needs is not read.
#[derive(Debug, Default)]
pub(crate) struct ExternalFiles {
    /// The model's; `None` if the model is not a file.
    model: Option<PathBuf>,
    /// Maximum bytes of tensors, over all files.
    max_bytes: u64,
    mapped: RefCell<HashMap<PathBuf, Bytes>>,
    regions: RefCell<HashMap<Region, Bytes>>,
    /// By path: bytes of tensors.
    used: RefCell<HashMap<PathBuf, u64>>,
}

/// Bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Region {
    path: PathBuf,
    offset: u64,
    count: u64,
}

impl ExternalFiles {
    pub fn new(model: Option<&Path>, max_bytes: u64) -> ExternalFiles {
        ExternalFiles { model: model.map(Path::to_path_buf), max_bytes, ..ExternalFiles::default() }
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
        let file = self.map(&path).map_err(error)?;
        let length = file.len() as u64;
        let offset = number("offset")?.unwrap_or(0);
        let rest = length.checked_sub(offset);
        let count = number("length")?.or(rest).unwrap_or(0);
        let range = rest.filter(|rest| count <= *rest).and_then(|_| {
            let (begin, count) = (usize::try_from(offset).ok()?, usize::try_from(count).ok()?);
            Some(begin..begin.checked_add(count)?)
        });
        let Some(range) = range else {
            return Err(format!("{}: {count} bytes from {offset} are needed, the file has {length}", path.display()));
        };
        let region = Region { path: path.clone(), offset, count };
        if let Some(known) = self.regions.borrow().get(&region) {
            return Ok(known.clone());
        }
        self.charge(&region, length)?;
        let content = file.slice(range);
        self.regions.borrow_mut().insert(region, content.clone());
        Ok(content)
    }

    /// The content of the file at `path`.
    fn map(&self, path: &Path) -> std::io::Result<Bytes> {
        if let Some(known) = self.mapped.borrow().get(path) {
            return Ok(known.clone());
        }
        let mapped = input_file::map(path)?;
        self.mapped.borrow_mut().insert(path.to_path_buf(), mapped.clone());
        Ok(mapped)
    }

    /// The file at `location`, links resolved: they may lead within the model's folder, and nowhere else.
    fn path(&self, location: &str) -> Result<PathBuf> {
        let shown = shown(location);
        let model =
            self.model.as_ref().ok_or_else(|| format!("external data in `{shown}`, and the model is not a file"))?;
        let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(location).components().all(is_inside) {
            return Err(format!("external data in `{shown}`: it must lie in the folder of the model"));
        }
        let named = folder(model).join(location);
        let error = |error: std::io::Error| format!("external data in {}: {error}", named.display());
        let resolved = named.canonicalize().map_err(error)?;
        // Stores of models link both the model and its data to files in one folder.
        let folders = [folder(model).canonicalize(), model.canonicalize().map(|model| folder(&model).to_path_buf())];
        match folders.iter().flatten().any(|folder| resolved.starts_with(folder)) {
            true => Ok(resolved),
            false => Err(format!(
                "external data in {}: it is a link to {}, outside of the model's folder",
                named.display(),
                resolved.display()
            )),
        }
    }

    fn charge(&self, region: &Region, length: u64) -> Result<()> {
        let (mut files, path) = (self.used.borrow_mut(), region.path.display());
        let before: u64 = files.values().sum();
        if before.saturating_add(region.count) > self.max_bytes {
            let (count, most) = (units::Bytes(region.count), units::Bytes(self.max_bytes));
            return Err(format!("{path}: {count} are needed; at most {most} of external data are read"));
        }
        let used = files.entry(region.path.clone()).or_default();
        *used = used.saturating_add(region.count);
        match *used > length.saturating_mul(MAX_OVERLAP) {
            true => Err(format!(
                "{path}: its tensors take more than {MAX_OVERLAP} times the size of the file: they overlap"
            )),
            false => Ok(()),
        }
    }
}

/// The folder of a file.
fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::StringStringEntryProto;

    #[test]
    fn regions_are_shared_and_overlap_is_limited() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("w.bin"), (0..8).collect::<Vec<u8>>()).unwrap();
        let model = folder.path().join("m.onnx");
        std::fs::write(&model, "").unwrap();
        let files = ExternalFiles::new(Some(&model), 64);
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
            ("w.bin", "1", "", "its tensors take more than 2 times the size of the file"),
            ("w.bin", "7", "2", "the file has 8"),
            ("w.bin", "-1", "2", "is not a number"),
            ("../w.bin", "", "", "must lie in the folder"),
            (".", "", "", "directory"),
            ("v.bin", "", "", "v.bin"),
        ] {
            let error = read(&files, location, offset, length).unwrap_err();
            assert!(error.contains(part), "{location}: {error}");
        }
        let error = read(&ExternalFiles::new(None, 16), "w.bin", "", "").unwrap_err();
        assert!(error.contains("the model is not a file"), "{error}");
        let error = read(&ExternalFiles::new(Some(&model), 7), "w.bin", "", "").unwrap_err();
        assert!(error.contains("at most 7 B of external data"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_lead_within_the_models_folder() {
        use std::os::unix::fs::symlink;
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for folder in ["store", "model", "model/inner"] {
            std::fs::create_dir(path(folder)).unwrap();
        }
        for file in ["secret", "store/model", "store/data", "model/inner/data"] {
            std::fs::write(path(file), "data").unwrap();
        }
        symlink(path("store/model"), path("model/linked.onnx")).unwrap();
        std::fs::write(path("model/plain.onnx"), "").unwrap();
        symlink("../store/data", path("model/stored")).unwrap();
        symlink("inner/data", path("model/inside")).unwrap();
        symlink(path("secret"), path("model/outside")).unwrap();
        symlink(place.path(), path("model/up")).unwrap();
        let read = |model: &str, location: &str| {
            let entry = StringStringEntryProto { key: Some("location".into()), value: Some(location.into()) };
            let tensor = TensorProto { external_data: vec![entry], ..TensorProto::default() };
            ExternalFiles::new(Some(&path(model)), 16).content(&tensor)
        };
        for (model, location) in [
            ("model/plain.onnx", "inside"),
            ("model/plain.onnx", "inner/data"),
            ("model/linked.onnx", "inside"),
            ("model/linked.onnx", "stored"),
        ] {
            assert_eq!(&read(model, location).unwrap()[..], b"data", "{model}: {location}");
        }
        for (model, location, target) in [
            ("model/plain.onnx", "outside", "secret"),
            ("model/plain.onnx", "up/secret", "secret"),
            ("model/plain.onnx", "stored", "store/data"),
            ("model/linked.onnx", "outside", "secret"),
        ] {
            let error = read(model, location).unwrap_err();
            let resolved = path(target).canonicalize().unwrap();
            assert!(error.contains(location) && error.contains(resolved.to_str().unwrap()), "{error}");
        }
    }
}
