//! `.npz` files: archives of numpy arrays, the format of inputs and outputs on the command line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, BufWriter, Cursor, Read, Seek, Write},
    path::{Path, PathBuf},
};

use npyz::{DType as NpyType, Endianness, NpyFile, Order, TypeChar, WriteOptions, WriterBuilder};
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

use crate::files::write_atomic;
use edgecut_graph::{DType, TensorData};

/// Why an `.npz` file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NpzError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: array `{array}`: {what}")]
    Array { path: PathBuf, array: String, what: String },
}

/// Reads all arrays of an `.npz` file, by name.
///
/// # Errors
/// If the file is not an archive of arrays, or the dtype of an array is not supported (strings, objects, complex numbers).
pub fn read_npz(path: &Path) -> Result<BTreeMap<String, TensorData>, NpzError> {
    let file = File::open(path).map_err(|source| NpzError::File { path: path.to_path_buf(), source })?;
    read_npz_from(path, BufReader::new(file))
}

/// Reads all arrays of an archive; `path` is used in messages.
///
/// # Errors
/// As [`read_npz`].
pub fn read_npz_from(path: &Path, archive: impl Read + Seek) -> Result<BTreeMap<String, TensorData>, NpzError> {
    let file_error = |source| NpzError::File { path: path.to_path_buf(), source };
    let mut archive = ZipArchive::new(archive).map_err(|error| file_error(error.into()))?;
    let names: Vec<String> =
        archive.file_names().filter_map(|name| name.strip_suffix(".npy")).map(str::to_string).collect();
    let mut tensors = BTreeMap::new();
    for name in names {
        let array = open_array(&mut archive, &name).map_err(file_error)?;
        let tensor = read_array(array).map_err(|what| NpzError::Array {
            path: path.to_path_buf(),
            array: name.clone(),
            what,
        })?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
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

/// Maximum size of a header; valid ones have about a hundred bytes.
const MAX_HEADER_BYTES: u32 = 1 << 16;

/// Opens the array `name` and reads its header, after checking the header's length: npyz allocates as much as it claims.
fn open_array<'z, R: Read + Seek>(
    archive: &'z mut ZipArchive<R>,
    name: &str,
) -> std::io::Result<NpyFile<impl Read + use<'z, R>>> {
    let mut file = archive.by_name(&format!("{name}.npy"))?;
    let mut head = [0; 12];
    file.read_exact(&mut head)?;
    let [.., major, _, a, b, c, d] = head;
    // Version 1 has two bytes for the length, later ones four.
    let len = if major == 1 { u16::from_le_bytes([a, b]).into() } else { u32::from_le_bytes([a, b, c, d]) };
    if len > MAX_HEADER_BYTES {
        let what = format!("the header of array `{name}` claims {len} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, what));
    }
    NpyFile::new(Cursor::new(head).chain(file))
}

/// The tensor in one `.npy` entry.
fn read_array(array: NpyFile<impl Read>) -> Result<TensorData, String> {
    let header = array.header().clone();
    let NpyType::Plain(element) = header.dtype() else {
        return Err("it is an array of records, expected plain numbers".to_string());
    };
    let dtype =
        dtype(element.type_char(), element.size_field()).ok_or_else(|| format!("no tensor holds numpy's {element}"))?;
    let count = header.shape().iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d));
    let need = count.and_then(|n| usize::try_from(n).ok()).ok_or("its shape is too large for memory")?;
    let mut bytes = Vec::new();
    array.into_inner().take(need as u64 + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() != need {
        return Err(format!("shape {:?} needs {need} bytes, the file has {} or more", header.shape(), bytes.len()));
    }
    if element.endianness() == Endianness::Big {
        bytes.chunks_exact_mut(dtype.size() as usize).for_each(<[u8]>::reverse);
    }
    if header.order() == Order::Fortran && header.shape().len() > 1 {
        bytes = row_major(&bytes, header.shape(), dtype.size() as usize);
    }
    TensorData::new(dtype, header.shape(), bytes).map_err(|e| e.to_string())
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

fn dtype(kind: TypeChar, size: u64) -> Option<DType> {
    let code = match kind {
        TypeChar::Bool => return Some(DType::Bool),
        TypeChar::Int => 0,
        TypeChar::Uint => 1,
        TypeChar::Float => 2,
        _ => return None,
    };
    let bits = u8::try_from(size.checked_mul(8)?).ok()?;
    Some(DType::from_dlpack(code, bits, 1)).filter(|d| !matches!(d, DType::Exotic(_)))
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
        let header = |order: Order, kind: &str| {
            let mut bytes = Vec::new();
            let dtype = NpyType::Plain(kind.parse().unwrap());
            let options = WriteOptions::new_header_only().dtype(dtype).shape(&[2, 3]).order(order);
            options.writer(&mut bytes).write_header_only().unwrap();
            bytes
        };
        let mut file = header(Order::Fortran, ">i2");
        (0..6u16).for_each(|n| file.extend(n.to_be_bytes()));
        let tensor = read_array(NpyFile::new(file.as_slice()).unwrap()).unwrap();
        assert_eq!(tensor.to_i64s(), Some(vec![0, 2, 4, 1, 3, 5]));
        file.pop();
        assert!(read_array(NpyFile::new(file.as_slice()).unwrap()).unwrap_err().contains("needs 12 bytes"));
        let strings = header(Order::C, "|S4");
        assert!(read_array(NpyFile::new(strings.as_slice()).unwrap()).unwrap_err().contains("no tensor holds"));
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
