//! Our tensors as tract's, and back.

use tract_core::internal::*;

use crate::{
    engine::EngineError,
    graph::{DType, TensorData, TensorType},
    ops::kernel,
};

/// The content of the tensor `name` for tract. Checks that it has the type the graph says.
pub(in crate::engine) fn to_tract(name: &str, data: &TensorData, ty: &TensorType) -> Result<Tensor, EngineError> {
    let error = |what: String| EngineError::Tensor { name: name.to_string(), what };
    let same_shape = ty.shape.rank() == data.shape().len()
        && ty.shape.iter().zip(data.shape()).all(|(want, have)| want.get().is_none_or(|n| n == *have));
    if ty.dtype != data.dtype() || !same_shape {
        return Err(error(format!("the model declares {ty}, {} was given", data.ty())));
    }
    let dtype = kernel::datum_type(ty.dtype).ok_or_else(|| error(format!("{} cannot be computed with", ty.dtype)))?;
    let shape: TVec<usize> = data.shape().iter().map(|d| *d as usize).collect();
    // A Rust bool is 0 or 1; a file may hold any byte.
    let bools = (ty.dtype == DType::Bool).then(|| data.bytes().iter().map(|b| u8::from(*b != 0)).collect::<Vec<u8>>());
    let bytes = bools.as_deref().unwrap_or(data.bytes());
    // SAFETY: `from_raw_dt` checks the length against the shape; every bit pattern is a value of the plain
    // number types, and bools were made 0 or 1 above.
    unsafe { Tensor::from_raw_dt(dtype, &shape, bytes) }.map_err(|e| error(format!("{e:#}")))
}

/// The content of a tract tensor, whose type must be one of ours. Nothing is copied.
pub(super) fn from_tract(name: &str, tensor: &TValue, ty: &TensorType) -> Result<TensorData, EngineError> {
    let error = |what: String| EngineError::Tensor { name: name.to_string(), what };
    if kernel::datum_type(ty.dtype) != Some(tensor.datum_type()) || !tensor.is_plain_ram() {
        return Err(error(format!("its kernel gave {tensor:?}, the model declares {ty}")));
    }
    let shape: Vec<u64> = tensor.shape().iter().map(|d| *d as u64).collect();
    let bytes = bytes::Bytes::from_owner(Shared(tensor.clone()));
    TensorData::new(ty.dtype, shape, bytes).map_err(|e| error(e.to_string()))
}

/// The bytes of a plain tensor. tract writes into a tensor only while nobody else holds it.
struct Shared(TValue);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
