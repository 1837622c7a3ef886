//! The arrays of an `.npz` file with inputs. Names and types are known when the file is opened. An array is
//! decompressed when it is needed, after its type is checked.

use std::{
    collections::BTreeMap,
    fs::File,
    io::BufReader,
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use smol_str::SmolStr;

use crate::{
    Error,
    error::Message,
    file_kind::{self as kind, FileKind},
    input as file,
};
use edgecut_graph::{TensorData, TensorType, units::Bytes};
use edgecut_values::{NpzArchive, NpzError, resized};

/// The contents of inputs and parameters. An array is named `in_` and the name of its tensor.
#[derive(Clone, Default)]
pub struct Given {
    file: Option<Arc<GivenFile>>,
    /// Arrays that replace those of the file, by name with `in_`.
    resized: Arc<BTreeMap<String, (TensorType, TensorData)>>,
}

struct GivenFile {
    archive: Mutex<NpzArchive<BufReader<File>>>,
    arrays: BTreeMap<String, GivenArray>,
    /// The first array that could not be read.
    error: OnceLock<NpzError>,
}

struct GivenArray {
    ty: TensorType,
    content: OnceLock<Option<TensorData>>,
}

impl Given {
    /// Opens the file `inputs`, if there is one.
    ///
    /// # Errors
    /// If the file is not an archive of arrays, an array has an unexpected name, or the arrays are too large for this
    /// machine.
    pub fn open(inputs: Option<&Path>) -> Result<Given, Error> {
        let Some(path) = inputs else { return Ok(Given::default()) };
        let archive = NpzArchive::open(path, file::max_bytes()).map_err(|error| match file::read(path) {
            Ok(bytes) if !bytes.starts_with(b"PK") => {
                kind::mismatch_error(path, &bytes, FileKind::Npz, "expected an .npz file, as `numpy.savez` writes them")
            }
            _ => Error::bad_input(error),
        })?;
        let types: BTreeMap<String, TensorType> = archive.types().map(|(name, ty)| (name.to_string(), ty)).collect();
        if let Some(what) = wrong(&types) {
            return Err(Error::BadInput(Message::from(format!("{}: {what}", path.display()))));
        }
        let arrays = types.into_iter().map(|(name, ty)| (name, GivenArray { ty, content: OnceLock::new() })).collect();
        let file = GivenFile { archive: Mutex::new(archive), arrays, error: OnceLock::new() };
        Ok(Given { file: Some(Arc::new(file)), resized: Arc::default() })
    }

    /// The same arrays, with those in `shapes` padded with zeros or cropped to these shapes, at the end of each axis.
    ///
    /// # Errors
    /// If an array cannot be read, has another rank, or becomes too large for this machine.
    pub fn resized(&self, shapes: &BTreeMap<SmolStr, Vec<u64>>) -> Result<Given, Error> {
        let types = shapes.iter().filter_map(|(name, shape)| Some(TensorType::of(self.ty(name)?.dtype, shape)));
        let (bytes, limit) = (types.filter_map(|ty| ty.bytes()).sum::<Bytes>(), Bytes(file::max_bytes()));
        if bytes > limit {
            let what = format!("padded inputs take {bytes}, the limit on this machine is {limit}");
            return Err(Error::BadInput(Message::from(what)));
        }
        let mut arrays = BTreeMap::new();
        for (name, shape) in shapes {
            let Some(data) = self.get(name) else { continue };
            let resized = resized(data, shape).ok_or_else(|| {
                let (ty, wanted) = (data.ty(), TensorType::of(data.dtype(), shape));
                Error::BadInput(Message::from(format!("array `in_{name}` of type {ty} cannot be padded to {wanted}")))
            })?;
            arrays.insert(format!("in_{name}"), (resized.ty(), resized));
        }
        self.check_read()?;
        Ok(Given { file: self.file.clone(), resized: Arc::new(arrays) })
    }

    pub fn is_empty(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.arrays.is_empty())
    }

    /// The names of the arrays for inputs and parameters, with `in_`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.file.iter().flat_map(|file| file.arrays.keys());
        names.map(String::as_str).filter(|name| name.starts_with("in_"))
    }

    /// The type of the array for the tensor `name`. Reads no content.
    pub fn ty(&self, name: &str) -> Option<&TensorType> {
        let name = format!("in_{name}");
        match self.resized.get(&name) {
            Some((ty, _)) => Some(ty),
            None => Some(&self.file.as_ref()?.arrays.get(&name)?.ty),
        }
    }

    /// The array for the tensor `name`. It is also `None` if it cannot be read, which [`Given::check`] reports.
    pub fn get(&self, name: &str) -> Option<&TensorData> {
        let (file, name) = (self.file.as_ref()?, format!("in_{name}"));
        if let Some((_, data)) = self.resized.get(&name) {
            return Some(data);
        }
        let content = &file.arrays.get(&name)?.content;
        let read = || {
            let mut archive = file.archive.lock().unwrap_or_else(PoisonError::into_inner);
            archive.read(&name).map_err(|error| file.error.set(error)).ok()
        };
        content.get_or_init(read).as_ref()
    }

    /// Reads all arrays for inputs and parameters.
    ///
    /// # Errors
    /// If an array cannot be read, or could not be read before.
    pub fn check(&self) -> Result<(), Error> {
        for name in self.names() {
            self.get(&name["in_".len()..]);
        }
        self.check_read()
    }

    /// Checks the arrays that were read so far.
    ///
    /// # Errors
    /// If an array could not be read.
    pub(crate) fn check_read(&self) -> Result<(), Error> {
        match self.file.as_ref().and_then(|file| file.error.get()) {
            Some(error) => Err(Error::bad_input(error)),
            None => Ok(()),
        }
    }
}

/// What is wrong with a file that has arrays of these names and types, if anything.
fn wrong(types: &BTreeMap<String, TensorType>) -> Option<String> {
    let is_foreign = |name: &&String| !name.starts_with("in_") && !name.starts_with("out_");
    if let Some(name) = types.keys().find(is_foreign) {
        return Some(format!("unexpected array `{name}`: the array for an input `x` is named `in_x`"));
    }
    let inputs = || types.iter().filter(|(name, _)| name.starts_with("in_"));
    if !types.is_empty() && inputs().next().is_none() {
        let names = types.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Some(format!("it has no array `in_…` for an input, only {names}"));
    }
    let (bytes, limit) = (inputs().filter_map(|(_, ty)| ty.bytes()).sum::<Bytes>(), Bytes(file::max_bytes()));
    (bytes > limit).then(|| format!("its arrays take {bytes}, the limit on this machine is {limit}"))
}
