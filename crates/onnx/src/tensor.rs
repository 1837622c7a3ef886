//! Tensors of a model: element types, contents in the file or in another one.

use bytes::Bytes;
use edgecut_graph::{DType, Dim, Exotic, Shape, TensorData, TensorType};
use smol_str::SmolStr;

use crate::{
    error::Result,
    external::ExternalFiles,
    proto::{SparseTensorProto, TensorProto, TypeProto, ValueInfoProto, tensor_shape_proto::dimension, type_proto},
    unknown_dim::UnknownDim,
};

/// `TensorProto.DataType` by number: its name and the element type in the graph.
const ELEMENT_TYPES: &[(i32, &str, Option<DType>)] = &[
    (1, "float", Some(DType::F32)),
    (2, "uint8", Some(DType::U8)),
    (3, "int8", Some(DType::I8)),
    (4, "uint16", Some(DType::U16)),
    (5, "int16", Some(DType::I16)),
    (6, "int32", Some(DType::I32)),
    (7, "int64", Some(DType::I64)),
    (8, "string", None),
    (9, "bool", Some(DType::Bool)),
    (10, "float16", Some(DType::F16)),
    (11, "double", Some(DType::F64)),
    (12, "uint32", Some(DType::U32)),
    (13, "uint64", Some(DType::U64)),
    (14, "complex64", None),
    (15, "complex128", None),
    (16, "bfloat16", Some(DType::Bf16)),
    (17, "float8e4m3fn", exotic(Exotic::E4M3)),
    (18, "float8e4m3fnuz", exotic(Exotic::E4M3_FNUZ)),
    (19, "float8e5m2", exotic(Exotic::E5M2)),
    (20, "float8e5m2fnuz", exotic(Exotic::E5M2_FNUZ)),
    (21, "uint4", exotic(Exotic::U4)),
    (22, "int4", exotic(Exotic::I4)),
    (23, "float4e2m1", exotic(Exotic::E2M1)),
    (24, "float8e8m0", exotic(Exotic::E8M0)),
];

/// A type without kernels, which ONNX Runtime may compute: operators that read or make it stay as they are in the file.
const fn exotic(exotic: Exotic) -> Option<DType> {
    Some(DType::Exotic(exotic))
}

/// `TensorProto.DataLocation.EXTERNAL`.
const EXTERNAL: i32 = 1;

/// The element type with this number in `TensorProto.DataType`.
///
/// # Errors
/// If the graph has no such element type.
pub fn dtype(number: i64) -> Result<DType> {
    match ELEMENT_TYPES.iter().find(|(known, ..)| i64::from(*known) == number) {
        Some((_, _, Some(dtype))) => Ok(*dtype),
        Some((_, name, None)) => Err(format!("elements of type {name} are not supported")),
        None => Err(format!("{number} is not an element type of ONNX")),
    }
}

/// Why the graph cannot have a value of this type; `None` if it can.
pub(crate) fn refusal(ty: &TypeProto) -> Option<String> {
    match ty.value.as_ref()? {
        type_proto::Value::TensorType(tensor) => dtype(tensor.elem_type.unwrap_or_default().into()).err(),
        type_proto::Value::SequenceType(_) => Some("sequences are not supported here".to_string()),
        type_proto::Value::MapType(_) => Some("maps are not supported".to_string()),
        type_proto::Value::SparseTensorType(_) => Some("sparse tensors are not supported".to_string()),
        type_proto::Value::OptionalType(_) => Some("optional values are not supported here".to_string()),
    }
}

/// The number of an element type in `TensorProto.DataType`.
///
/// # Errors
/// If ONNX has no such type.
pub fn element_type(dtype: DType) -> Result<i32> {
    let found = ELEMENT_TYPES.iter().find(|(.., known)| *known == Some(dtype));
    found.map(|(number, ..)| *number).ok_or_else(|| format!("elements of type {dtype} are not supported"))
}

/// The type of an input or output; `bind` gives the sizes of symbolic dimensions.
///
/// # Errors
/// If it is not a tensor, its rank is unknown, or its element type is not supported.
pub(crate) fn tensor_type(ty: Option<&TypeProto>, bind: impl Fn(&str, usize) -> Option<u64>) -> Result<TensorType> {
    let ty = ty.ok_or("the file does not state its type")?;
    if let Some(why) = refusal(ty) {
        return Err(why);
    }
    let Some(type_proto::Value::TensorType(tensor)) = &ty.value else {
        return Err("the file does not state its type".to_string());
    };
    let dtype = dtype(tensor.elem_type.unwrap_or_default().into())?;
    let shape = tensor.shape.as_ref().ok_or("the file does not state its rank")?;
    let dim = |(axis, dim): (usize, &crate::proto::tensor_shape_proto::Dimension)| match &dim.value {
        Some(dimension::Value::DimValue(size)) => match u64::try_from(*size) {
            Ok(size) => Ok(Dim::Known(size)),
            Err(_) => Ok(bind("", axis).into()),
        },
        Some(dimension::Value::DimParam(symbol)) => Ok(bind(symbol, axis).into()),
        None => Ok(bind("", axis).into()),
    };
    let shape: Shape = shape.dim.iter().enumerate().map(dim).collect::<Result<_>>()?;
    if shape.rank() > Shape::MAX_DIMS {
        return Err(format!("{} dimensions; at most {} are read", shape.rank(), Shape::MAX_DIMS));
    }
    Ok(TensorType::new(dtype, shape))
}

/// The dimensions of an input whose sizes the file does not state.
pub(crate) fn unknown_dims(input: &ValueInfoProto) -> Vec<UnknownDim> {
    let Some(type_proto::Value::TensorType(tensor)) = input.r#type.as_ref().and_then(|ty| ty.value.as_ref()) else {
        return Vec::new();
    };
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim).enumerate();
    let rank = dims.clone().count();
    let unknown = |symbol: &str, axis| {
        // Some exporters call every unknown dimension `?`.
        let symbol = (!matches!(symbol, "" | "?")).then(|| SmolStr::new(symbol));
        UnknownDim { input: SmolStr::new(input.name.as_deref().unwrap_or_default()), axis, rank, symbol }
    };
    dims.filter_map(|(axis, dim)| match &dim.value {
        Some(dimension::Value::DimValue(size)) if *size >= 0 => None,
        Some(dimension::Value::DimParam(symbol)) => Some(unknown(symbol, axis)),
        _ => Some(unknown("", axis)),
    })
    .collect()
}

/// The element type of a stored tensor.
///
/// # Errors
/// If the graph has no such element type, or several elements share a byte.
pub(crate) fn content_type(tensor: &TensorProto) -> Result<DType> {
    match dtype(tensor.data_type.unwrap_or_default().into())? {
        packed @ DType::Exotic(Exotic { bits: ..8, .. }) => {
            Err(format!("stored tensors of type {packed} are not supported: several elements share a byte"))
        }
        dtype => Ok(dtype),
    }
}

/// The content of a tensor; `files` has external data.
///
/// # Errors
/// If the element type is not supported, or the content does not fill the shape.
pub(crate) fn tensor_data(tensor: &TensorProto, files: &ExternalFiles) -> Result<TensorData> {
    let dtype = content_type(tensor)?;
    let dims: Vec<u64> = tensor
        .dims
        .iter()
        .map(|dim| u64::try_from(*dim))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| format!("a dimension is negative: {:?}", tensor.dims))?;
    let bytes = if tensor.data_location == Some(EXTERNAL) {
        files.content(tensor)?
    } else if let Some(raw) = &tensor.raw_data {
        raw.clone()
    } else {
        Bytes::from(listed(tensor, dtype)?)
    };
    let bytes = if dtype == DType::Bool && bytes.iter().any(|byte| *byte > 1) {
        bytes.iter().map(|byte| u8::from(*byte != 0)).collect()
    } else {
        bytes
    };
    TensorData::new(dtype, dims, bytes).map_err(|error| error.to_string())
}

/// The dense content of a sparse tensor: values, and their positions in row-major order or as a row of indices each.
/// `charge` is called with its size before it exists.
///
/// # Errors
/// As [`tensor_data`], if a position is outside the shape, or the size is refused.
pub(crate) fn sparse_data(
    sparse: &SparseTensorProto,
    files: &ExternalFiles,
    charge: impl FnOnce(u64) -> Result<()>,
) -> Result<TensorData> {
    let values = tensor_data(sparse.values.as_ref().ok_or("it has no values")?, files)?;
    let indices = tensor_data(sparse.indices.as_ref().ok_or("it has no indices")?, files)?;
    let positions = indices.to_i64s().ok_or("its indices must be integers")?;
    let dims: Vec<u64> = sparse
        .dims
        .iter()
        .map(|dim| u64::try_from(*dim))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| format!("a dimension is negative: {:?}", sparse.dims))?;
    let ty = TensorType::of(values.dtype(), &dims);
    let bytes = ty.bytes().unwrap_or_default().0;
    charge(bytes)?;
    let (width, mut dense) = (values.dtype().size() as usize, vec![0; bytes as usize]);
    let rank = if indices.shape().len() == 2 { dims.len() } else { 1 };
    let rows = positions.chunks(rank.max(1));
    for (row, element) in rows.zip(values.bytes().chunks(width.max(1))) {
        let outside = || format!("position {row:?} is outside the shape {dims:?}");
        let mut at = 0u64;
        for (axis, index) in row.iter().enumerate() {
            let index = u64::try_from(*index).map_err(|_| outside())?;
            let size = if rank == 1 { u64::MAX } else { dims[axis] };
            if index >= size {
                return Err(outside());
            }
            at = if rank == 1 { index } else { at * size + index };
        }
        let start = usize::try_from(at).ok().and_then(|at| at.checked_mul(width)).ok_or_else(outside)?;
        let slot = start.checked_add(width).and_then(|end| dense.get_mut(start..end)).ok_or_else(outside)?;
        slot.copy_from_slice(element);
    }
    TensorData::new(values.dtype(), dims, dense).map_err(|error| error.to_string())
}

/// The elements of the typed lists, which hold those of narrower types as well.
fn listed(tensor: &TensorProto, dtype: DType) -> Result<Vec<u8>> {
    let narrow =
        |width: usize| tensor.int32_data.iter().flat_map(|n| n.to_le_bytes().into_iter().take(width)).collect();
    Ok(match dtype {
        DType::F32 => tensor.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::F64 => tensor.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I64 => tensor.int64_data.iter().flat_map(|n| n.to_le_bytes()).collect(),
        DType::U64 => tensor.uint64_data.iter().flat_map(|n| n.to_le_bytes()).collect(),
        DType::U32 => tensor.uint64_data.iter().flat_map(|n| n.to_le_bytes().into_iter().take(4)).collect(),
        DType::I32 => narrow(4),
        DType::I16 | DType::U16 | DType::F16 | DType::Bf16 => narrow(2),
        DType::I8 | DType::U8 | DType::Bool => narrow(1),
        DType::Exotic(_) => return Err(format!("elements of type {dtype} are not supported")),
    })
}

/// One element of `dtype`, rounded or wrapped to it.
pub(crate) fn element(value: f64, dtype: DType) -> Option<Vec<u8>> {
    Some(match dtype {
        DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::Bool => vec![u8::from(value != 0.0)],
        DType::U64 => (value as u64).to_le_bytes().to_vec(),
        DType::Exotic(_) => return None,
        _ => (value as i64).to_le_bytes().get(..dtype.size() as usize)?.to_vec(),
    })
}
