//! Dtypes and tensor types in tract's terms.

use edgecut_graph::{DType, TensorType};
use tract_core::internal::*;

/// tract's datum type for a dtype; `None` where tract has none. bfloat16 is stored as its bits in `u16`.
pub fn datum_type(dtype: DType) -> Option<DatumType> {
    Some(match dtype {
        DType::Bool => DatumType::Bool,
        DType::I8 => DatumType::I8,
        DType::I16 => DatumType::I16,
        DType::I32 => DatumType::I32,
        DType::I64 => DatumType::I64,
        DType::U8 => DatumType::U8,
        DType::U16 => DatumType::U16,
        DType::U32 => DatumType::U32,
        DType::U64 => DatumType::U64,
        DType::F16 => DatumType::F16,
        DType::F32 => DatumType::F32,
        DType::F64 => DatumType::F64,
        DType::Bf16 => DatumType::U16,
        DType::Exotic(_) => return None,
    })
}

/// A tensor type as a tract fact.
///
/// # Errors
/// If a dimension is unknown or tract has no such dtype.
pub fn fact(ty: &TensorType) -> TractResult<TypedFact> {
    let dtype = datum_type(ty.dtype).with_context(|| format!("tract has no dtype {}", ty.dtype))?;
    let dims = ty.shape.fixed().with_context(|| format!("{ty} has unknown dimensions"))?;
    Ok(dtype.fact(dims.iter().map(|d| *d as usize).collect::<TVec<usize>>()))
}
