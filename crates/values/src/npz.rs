//! `.npz` files: archives of numpy arrays, the format of inputs and outputs on the command line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, Write},
    path::{Path, PathBuf},
};

use npyz::{DType as NpyType, WriteOptions, WriterBuilder};
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

use crate::{files::write_atomic, input_file, npy_header::NpyHeader};
use edgecut_graph::{DType, TensorData, TensorType};

/// Why an `.npz` file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NpzError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: array `{array}`: {what}")]
    Array { path: PathBuf, array: String, what: String },
}

/// An archive whose arrays are read one by one. Names and types are known before anything is inflated.
pub struct NpzArchive<R> {
    path: PathBuf,
    archive: ZipArchive<R>,
    headers: BTreeMap<String, NpyHeader>,
}

impl NpzArchive<BufReader<File>> {
    /// Opens the file at `path`, which may have `limit` bytes: all of it is searched for the list of its members.
    ///
    /// # Errors
    /// If it is larger, is not an archive of arrays, or the dtype of an array is not supported (strings, objects, complex numbers).
    pub fn open(path: &Path, limit: u64) -> Result<NpzArchive<BufReader<File>>, NpzError> {
        let file = input_file::open_within(path, limit)
            .map_err(|source| NpzError::File { path: path.to_path_buf(), source })?;
        NpzArchive::new(path, BufReader::new(file))
    }
}

impl<R: Read + Seek> NpzArchive<R> {
    /// Reads the headers of `archive`; `path` is used in messages.
    ///
    /// # Errors
    /// As [`NpzArchive::open`].
    pub fn new(path: &Path, archive: R) -> Result<NpzArchive<R>, NpzError> {
        let file_error = |source| NpzError::File { path: path.to_path_buf(), source };
        let mut archive = ZipArchive::new(archive).map_err(|error| file_error(error.into()))?;
        let names: Vec<String> =
            archive.file_names().filter_map(|name| name.strip_suffix(".npy")).map(str::to_string).collect();
        let mut headers = BTreeMap::new();
        for name in names {
            let mut array = archive.by_name(&member(&name)).map_err(|error| file_error(error.into()))?;
            let header = NpyHeader::read(&mut array).map_err(|what| NpzError::Array {
                path: path.to_path_buf(),
                array: name.clone(),
                what,
            })?;
            headers.insert(name, header);
        }
        Ok(NpzArchive { path: path.to_path_buf(), archive, headers })
    }

    /// The arrays by name, as their headers announce them.
    pub fn types(&self) -> impl Iterator<Item = (&str, TensorType)> {
        self.headers.iter().map(|(name, header)| (name.as_str(), header.ty()))
    }

    /// Inflates an array, no further than its header announces.
    ///
    /// # Errors
    /// If there is no such array, or it does not have what its header announces.
    pub fn read(&mut self, name: &str) -> Result<TensorData, NpzError> {
        let file_error = |source| NpzError::File { path: self.path.clone(), source };
        let mut array = self.archive.by_name(&member(name)).map_err(|error| file_error(error.into()))?;
        let read = NpyHeader::read(&mut array).and_then(|header| match self.headers.get(name) {
            Some(announced) if *announced == header => elements(&header, array),
            _ => Err("it changed while it was read".to_string()),
        });
        read.map_err(|what| NpzError::Array { path: self.path.clone(), array: name.to_string(), what })
    }
}

/// Reads all arrays of an `.npz` file, by name.
///
/// # Errors
/// As [`NpzArchive::open`] and [`NpzArchive::read`].
pub fn read_npz(path: &Path) -> Result<BTreeMap<String, TensorData>, NpzError> {
    let mut archive = NpzArchive::open(path, u64::MAX)?;
    let names: Vec<String> = archive.headers.keys().cloned().collect();
    names.into_iter().map(|name| archive.read(&name).map(|tensor| (name, tensor))).collect()
}

/// Writes tensors as arrays of an uncompressed `.npz` file, atomically.
///
/// # Errors
/// If the file cannot be written, or numpy lacks a tensor's dtype (bfloat16).
pub fn write_npz<'a>(path: &Path, tensors: impl IntoIterator<Item = (String, &'a TensorData)>) -> Result<(), NpzError> {
    let typed = tensors.into_iter().map(|(name, tensor)| match npy_type(tensor.dtype()) {
        Some(dtype) => Ok((name, dtype, tensor)),
        None => Err(NpzError::Array {
            path: path.to_path_buf(),
            array: name,
            what: format!("numpy has no {}: cast this output to another dtype in the model", tensor.dtype()),
        }),
    });
    let typed = typed.collect::<Result<Vec<_>, _>>()?;
    write_atomic(path, |file| {
        let mut archive = ZipWriter::new(BufWriter::new(file));
        for (name, dtype, tensor) in typed {
            let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored).large_file(true);
            archive.start_file(format!("{name}.npy"), stored)?;
            let header = WriteOptions::new_header_only().dtype(dtype).shape(tensor.shape());
            header.writer(&mut archive).write_header_only()?;
            archive.write_all(tensor.bytes())?;
        }
        archive.finish()?.flush()
    })
    .map_err(|source| NpzError::File { path: path.to_path_buf(), source })
}

/// The name of an array's file in the archive.
fn member(array: &str) -> String {
    format!("{array}.npy")
}

/// The elements that follow `header` in `file`.
fn elements(header: &NpyHeader, file: impl Read) -> Result<TensorData, String> {
    let need = header.bytes().ok_or("its shape is too large for memory")?;
    let mut bytes = Vec::new();
    file.take((need as u64).saturating_add(1)).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() != need {
        let (shape, more) = (&header.shape, if bytes.len() > need { " or more" } else { "" });
        return Err(format!("shape {shape:?} needs {need} bytes, the file has {}{more}", bytes.len()));
    }
    let size = header.dtype.size() as usize;
    if header.is_big_endian {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    if header.is_fortran_order && header.shape.len() > 1 {
        bytes = row_major(&bytes, &header.shape, size);
    }
    TensorData::new(header.dtype, header.shape.clone(), bytes).map_err(|e| e.to_string())
}

/// Converts column-major to row-major order.
fn row_major(bytes: &[u8], shape: &[u64], size: usize) -> Vec<u8> {
    let mut sorted = Vec::with_capacity(bytes.len());
    let mut index = vec![0u64; shape.len()];
    for _ in 0..bytes.len() / size {
        let from = shape.iter().zip(&index).rev().fold(0, |at, (d, i)| at * d + i) as usize * size;
        sorted.extend_from_slice(&bytes[from..from + size]);
        for (i, d) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *d {
                break;
            }
            *i = 0;
        }
    }
    sorted
}

fn npy_type(dtype: DType) -> Option<NpyType> {
    let text = match dtype {
        DType::Bool => "|b1".to_string(),
        DType::Bf16 | DType::Exotic(_) => return None,
        DType::I8 | DType::U8 => format!("|{}1", if dtype.is_signed() { 'i' } else { 'u' }),
        _ if dtype.is_float() => format!("<f{}", dtype.size()),
        _ => format!("<{}{}", if dtype.is_signed() { 'i' } else { 'u' }, dtype.size()),
    };
    text.parse().ok().map(NpyType::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded;
    use edgecut_graph::TensorType;

    #[test]
    fn what_is_written_reads_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut written = BTreeMap::new();
        for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split(' ') {
            for dims in [&[] as &[u64], &[3], &[2, 0, 4], &[2, 3, 5]] {
                let ty = TensorType::of(name.parse().unwrap(), dims);
                written.insert(format!("in_{name}::{}", dims.len()), seeded(name, &ty).unwrap());
            }
        }
        write_npz(file.path(), written.iter().map(|(n, t)| (n.clone(), t))).unwrap();
        assert_eq!(read_npz(file.path()).unwrap(), written);
    }

    #[test]
    fn column_major_and_big_endian_arrays_are_sorted() {
        let mut file = Vec::new();
        let dtype = NpyType::Plain(">i2".parse().unwrap());
        let options = WriteOptions::new_header_only().dtype(dtype).shape(&[2, 3]).order(npyz::Order::Fortran);
        options.writer(&mut file).write_header_only().unwrap();
        (0..6u16).for_each(|n| file.extend(n.to_be_bytes()));
        let read = |mut file: &[u8]| NpyHeader::read(&mut file).and_then(|header| elements(&header, file));
        assert_eq!(read(&file).unwrap().to_i64s(), Some(vec![0, 2, 4, 1, 3, 5]));
        file.pop();
        assert!(read(&file).unwrap_err().contains("needs 12 bytes, the file has 11"));
    }

    #[test]
    fn a_file_that_is_no_archive_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"not a zip").unwrap();
        let message = read_npz(file.path()).unwrap_err().to_string();
        assert!(message.starts_with(&file.path().display().to_string()), "{message}");
        assert!(write_npz(Path::new("/dev/null/x.npz"), []).is_err());
    }
}
