//! Tensors with content: constants, inputs, results and transfers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    dtype::DType,
    types::{Dim, TensorType},
};

/// A dense tensor: row-major, little-endian; a bool takes one byte, and so does every other type narrower than that.
///
/// Clones share storage. Invariant: the byte length is the product of the shape times the element size.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct TensorData(Arc<Content>);

struct Content {
    dtype: DType,
    shape: Vec<u64>,
    bytes: Bytes,
    /// Of `bytes`, once it was asked for.
    hash: OnceLock<ContentHash>,
}

/// The BLAKE3 hash of the bytes of a tensor, whatever its type; serialized as hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentHash(blake3::Hash);

/// The byte length does not match the type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a {dtype} tensor of shape {shape:?} has {need} bytes, found {found}")]
pub struct TensorError {
    dtype: DType,
    shape: Vec<u64>,
    need: String,
    found: usize,
}

impl TensorData {
    /// A tensor with the content `bytes`.
    ///
    /// # Errors
    /// If the number of bytes is not the product of the shape times the element size.
    pub fn new(dtype: DType, shape: impl Into<Vec<u64>>, bytes: impl Into<Bytes>) -> Result<Self, TensorError> {
        let (shape, bytes) = (shape.into(), bytes.into());
        let need = shape.iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d));
        if need != Some(bytes.len() as u64) {
            let need = need.map_or("more than 2^64".to_string(), |n| n.to_string());
            return Err(TensorError { dtype, shape, need, found: bytes.len() });
        }
        Ok(TensorData(Arc::new(Content { dtype, shape, bytes, hash: OnceLock::new() })))
    }

    /// Zeros of type `ty`; `None` if a size is unknown or there are more bytes than can be addressed.
    pub fn zeros(ty: &TensorType) -> Option<TensorData> {
        let shape: Vec<u64> = ty.shape.iter().map(|dim| dim.get()).collect::<Option<_>>()?;
        let bytes = shape.iter().try_fold(ty.dtype.size(), |bytes, size| bytes.checked_mul(*size))?;
        let bytes = usize::try_from(isize::try_from(bytes).ok()?).ok()?;
        TensorData::new(ty.dtype, shape, vec![0; bytes]).ok()
    }

    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    pub fn shape(&self) -> &[u64] {
        &self.0.shape
    }

    pub fn bytes(&self) -> &Bytes {
        &self.0.bytes
    }

    /// The hash of the bytes, which all clones compute once.
    pub fn content_hash(&self) -> ContentHash {
        *self.0.hash.get_or_init(|| ContentHash::of(self.bytes()))
    }

    /// Whether the content has the type `ty`; unknown dimensions admit every size.
    pub fn is_of(&self, ty: &TensorType) -> bool {
        let same = |(want, have): (&Dim, &u64)| want.get().is_none_or(|n| n == *have);
        let shape = self.shape();
        ty.dtype == self.dtype() && ty.shape.rank() == shape.len() && ty.shape.iter().zip(shape).all(same)
    }

    pub fn ty(&self) -> TensorType {
        TensorType::of(self.dtype(), self.shape())
    }

    /// The elements as 64-bit integers; floats are truncated. `None` for [`DType::Exotic`].
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        let signed = |x: f64| x as i64;
        Some(match self.dtype() {
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => self.to_f64s()?.into_iter().map(signed).collect(),
            DType::Exotic(_) => return None,
            dtype => self.bytes().chunks_exact(dtype.size() as usize).map(|b| integer(b, dtype.is_signed())).collect(),
        })
    }

    /// The elements as double-precision floats. `None` for [`DType::Exotic`].
    pub fn to_f64s(&self) -> Option<Vec<f64>> {
        let each = |f: fn(&[u8]) -> f64| self.bytes().chunks_exact(self.dtype().size() as usize).map(f).collect();
        Some(match self.dtype() {
            DType::F16 => each(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f64()),
            DType::Bf16 => each(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f64()),
            DType::F32 => each(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
            DType::F64 => each(|b| f64::from_bits(integer(b, false) as u64)),
            DType::U64 => each(|b| integer(b, false) as u64 as f64),
            _ => self.to_i64s()?.into_iter().map(|n| n as f64).collect(),
        })
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        (self.dtype, &self.shape, &self.bytes) == (other.dtype, &other.shape, &other.bytes)
    }
}

impl ContentHash {
    pub fn of(bytes: &[u8]) -> ContentHash {
        ContentHash(blake3::hash(bytes))
    }
}

impl From<blake3::Hash> for ContentHash {
    fn from(hash: blake3::Hash) -> ContentHash {
        ContentHash(hash)
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> String {
        hash.0.to_hex().to_string()
    }
}

impl TryFrom<String> for ContentHash {
    type Error = blake3::HexError;
    fn try_from(hex: String) -> Result<ContentHash, blake3::HexError> {
        blake3::Hash::from_hex(hex).map(ContentHash)
    }
}

/// A little-endian integer of 1 to 8 bytes, sign-extended if `signed`.
fn integer(bytes: &[u8], signed: bool) -> i64 {
    let fill = if signed && bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
    let mut wide = [fill; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    i64::from_le_bytes(wide)
}

impl std::fmt::Debug for TensorData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorData({})", self.ty())
    }
}

/// The serialized form of [`TensorData`].
#[derive(Serialize, Deserialize)]
struct Parts {
    dtype: DType,
    shape: Vec<u64>,
    base64: String,
}

impl From<TensorData> for Parts {
    fn from(tensor: TensorData) -> Parts {
        let base64 = base64_simd::STANDARD.encode_to_string(tensor.bytes());
        Parts { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), base64 }
    }
}

impl TryFrom<Parts> for TensorData {
    type Error = String;
    fn try_from(parts: Parts) -> Result<TensorData, String> {
        let bytes = base64_simd::STANDARD.decode_to_vec(parts.base64).map_err(|e| e.to_string())?;
        TensorData::new(parts.dtype, parts.shape, bytes).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_length_must_match_the_shape() {
        assert!(TensorData::new(DType::F32, [2, 3], vec![0; 24]).is_ok());
        assert!(TensorData::new(DType::F32, [2, 3], vec![0; 23]).is_err());
        assert!(TensorData::new(DType::F32, [u64::MAX, 2], vec![0; 8]).is_err());
        assert!(TensorData::new(DType::I64, [0, u64::MAX], vec![]).is_ok());
    }

    #[test]
    fn elements_convert() {
        let t = TensorData::new(DType::I8, [3], vec![1, 0xff, 0x80]).unwrap();
        assert_eq!(t.to_i64s(), Some(vec![1, -1, -128]));
        let t = TensorData::new(DType::F32, [1], 2.5f32.to_le_bytes().to_vec()).unwrap();
        assert_eq!(t.to_f64s(), Some(vec![2.5]));
        let json = serde_json::to_string(&t).unwrap();
        assert_eq!(serde_json::from_str::<TensorData>(&json).unwrap(), t);
    }
}
