//! Conversion of tensors to and from tract's.

use tract_core::internal::*;

use crate::EngineError;
use edgecut_graph::{DType, TensorData, TensorType};
use edgecut_ops::kernel;

/// Converts the content of the tensor `name`, after checking that it has the type `ty`.
pub(crate) fn to_tract(name: &str, data: &TensorData, ty: &TensorType) -> Result<Tensor, EngineError> {
    let error = |what: String| EngineError::Tensor { name: name.to_string(), what };
    if !data.is_of(ty) {
        return Err(error(format!("the model declares {ty}, {} was given", data.ty())));
    }
    let dtype = kernel::datum_type(ty.dtype).ok_or_else(|| error(format!("tract has no type {}", ty.dtype)))?;
    let shape: TVec<usize> = data.shape().iter().map(|d| *d as usize).collect();
    // A Rust bool is 0 or 1; a file may contain any byte.
    let bools = (ty.dtype == DType::Bool).then(|| data.bytes().iter().map(|b| u8::from(*b != 0)).collect::<Vec<u8>>());
    let bytes = bools.as_deref().unwrap_or(data.bytes());
    // SAFETY: `from_raw_dt` checks the length against the shape; every bit pattern is valid for the number types, and
    // bools were normalised to 0 or 1 above.
    unsafe { Tensor::from_raw_dt(dtype, &shape, bytes) }.map_err(|e| error(format!("{e:#}")))
}

/// Converts a tract tensor without copying; its type must be `ty`.
pub(super) fn from_tract(name: &str, tensor: &TValue, ty: &TensorType) -> Result<TensorData, EngineError> {
    let error = |what: String| EngineError::Tensor { name: name.to_string(), what };
    if kernel::datum_type(ty.dtype) != Some(tensor.datum_type()) || !tensor.is_plain_ram() {
        return Err(error(format!("its kernel returned {tensor:?}, the model declares {ty}")));
    }
    let shape: Vec<u64> = tensor.shape().iter().map(|d| *d as u64).collect();
    let bytes = bytes::Bytes::from_owner(SharedBytes(tensor.clone()));
    TensorData::new(ty.dtype, shape, bytes).map_err(|e| error(e.to_string()))
}

/// The bytes of a plain tensor. Sound because tract writes into a tensor only while it has no other owner.
struct SharedBytes(TValue);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
