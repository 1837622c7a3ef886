//! Constants, ranges and filled tensors.

use edgecut_graph::{Attr, DType, TensorData, TensorType};

use crate::{
    compose::{one, sizes, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("Constant", constant),
    ("ConstantOfShape", filled),
    ("EyeLike", eye),
    ("OneHot", one_hot),
    ("Range", range),
    ("Trilu", trilu),
];

fn numbers(values: impl IntoIterator<Item = f64>, dtype: DType, shape: Vec<u64>) -> Result<TensorData> {
    let mut bytes = Vec::new();
    for value in values {
        let element = crate::tensor::element(value, dtype);
        bytes.extend(element.ok_or_else(|| format!("elements of type {dtype} are not supported"))?);
    }
    TensorData::new(dtype, shape, bytes).map_err(|error| error.to_string())
}

fn constant(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    if let Some(data) = call.tensor("value")? {
        return one(call.lowering.add_constant(data));
    }
    if let Some(ints) = call.ints("value_ints") {
        return one(call.vector(&ints)?);
    }
    if let Some(int) = call.optional_int("value_int") {
        return one(call.ints_of_shape(&[int], &[])?);
    }
    let data = if let Some(floats) = call.floats("value_floats") {
        let count = floats.len() as u64;
        numbers(floats, DType::F32, vec![count])?
    } else if call.has("value_float") {
        numbers([call.float("value_float", 0.0)], DType::F32, Vec::new())?
    } else {
        return Err("strings and sparse tensors are not supported".to_string());
    };
    one(call.lowering.add_constant(data))
}

/// The sizes that input `index` holds.
fn shape(call: &Call<'_, '_>, index: usize) -> Result<Vec<u64>> {
    let sizes = call.content_ints(index, "the shape")?.ok_or("the shape is missing")?;
    sizes.iter().map(|size| u64::try_from(*size).map_err(|_| format!("{size} is not a size"))).collect()
}

fn filled(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (shape, value) = (shape(call, 0)?, call.tensor("value")?);
    let Some(value) = value else { return one(call.full(0.0, DType::F32, &shape)?) };
    // As it is stored: a number of 64 bits is no float.
    let dtype = value.dtype();
    let scalar = TensorData::new(dtype, [], value.bytes().clone());
    let scalar = call.lowering.add_constant(scalar.map_err(|_| "attribute value must hold one number".to_string())?);
    one(call.op("full", &[scalar], vec![("shape", sizes(&shape)), ("dtype", text(&dtype.to_string()))])?)
}

fn eye(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let [rows, columns] = call.dims(x)?[..] else { return Err("the input must be a matrix".to_string()) };
    let dtype = call.dtype("dtype")?.unwrap_or(call.dtype_of(x));
    let diagonal = call.int("k", 0);
    let bytes = TensorType::of(dtype, &[rows, columns]).bytes().unwrap_or_default();
    call.lowering.charge_constant(bytes.0)?;
    let values = (0..rows as i64).flat_map(|row| {
        let on = row.checked_add(diagonal);
        (0..columns as i64).map(move |column| f64::from(u8::from(Some(column) == on)))
    });
    let data = numbers(values, dtype, vec![rows, columns])?;
    one(call.lowering.add_constant(data))
}

/// Values are the pair (off, on); negative indices count from the end.
fn one_hot(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (at, values) = (call.input(0)?, call.input(2)?);
    let depth =
        call.content_floats(1, "the depth")?.and_then(|depth| depth.first().copied()).ok_or("the depth is missing")?;
    let (dtype, rank) = (call.dtype_of(values), call.rank(at) + 1);
    let axis = crate::call::axis_in(call.int("axis", -1), rank)?;
    let at = call.cast(at, DType::I64)?;
    let size = call.lowering.scalar(depth, DType::I64)?;
    let shifted = call.map("add", &[at, size])?;
    let zero = call.lowering.scalar(0.0, DType::I64)?;
    let is_negative = call.map("less", &[at, zero])?;
    let at = call.map("where", &[is_negative, shifted, at])?;
    let pair = call.split(values, 0, &[1, 1])?;
    let (off, on) = (call.reshape(pair[0], &[])?, call.reshape(pair[1], &[])?);
    let attrs =
        vec![("depth", Attr::Int(depth as i64)), ("axis", Attr::Int(axis as i64)), ("dtype", text(&dtype.to_string()))];
    one(call.op("one_hot", &[at, on, off], attrs)?)
}

/// Longest range that is computed during the import.
const FOLDED_RANGE: f64 = 1e5;

fn range(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let dtype = call.dtype_of(call.input(0)?);
    if dtype.is_integer() {
        return integer_range(call, dtype);
    }
    let number = |index| {
        let value = call.content_floats(index, "the range")?;
        value.and_then(|value| value.first().copied()).ok_or_else(|| format!("input {index} is missing"))
    };
    let (start, limit, delta) = (number(0)?, number(1)?, number(2)?);
    // The distance is a number of the type.
    let distance = if dtype == DType::F64 { limit - start } else { f64::from(limit as f32 - start as f32) };
    let count = (distance / delta).ceil().max(0.0);
    let bytes = (count * dtype.size() as f64) as u64;
    if count.is_nan() || count > FOLDED_RANGE || call.lowering.charge_constant(bytes).is_err() {
        return long_range(call, dtype, [start, limit, delta]);
    }
    let data = numbers((0..count as u64).map(|at| start + at as f64 * delta), dtype, vec![count as u64])?;
    one(call.lowering.add_constant(data))
}

/// A range that is computed by every run.
fn long_range(call: &mut Call<'_, '_>, dtype: DType, [start, limit, delta]: [f64; 3]) -> Result<Vec<Value>> {
    let ends = [call.input(0)?, call.input(1)?, call.input(2)?];
    let attrs = [("start", start), ("stop", limit), ("step", delta)].map(|(key, value)| (key, Attr::Float(value)));
    let attrs = attrs.into_iter().chain([("dtype", text(&dtype.to_string()))]).collect();
    one(call.op("arange", &ends, attrs)?)
}

fn integer_range(call: &mut Call<'_, '_>, dtype: DType) -> Result<Vec<Value>> {
    let number = |index| {
        let value = call.content_ints(index, "the range")?;
        value.and_then(|value| value.first().copied()).ok_or_else(|| format!("input {index} is missing"))
    };
    let (start, limit, delta) = (number(0)?, number(1)?, number(2)?);
    let distance = i128::from(limit) - i128::from(start);
    let count = match delta {
        0 => return Err("the step of a range must not be 0".to_string()),
        1.. => distance.max(0).unsigned_abs().div_ceil(u128::from(delta.unsigned_abs())),
        _ => distance.min(0).unsigned_abs().div_ceil(u128::from(delta.unsigned_abs())),
    };
    let width = dtype.size() as usize;
    let count = u64::try_from(count).ok().filter(|count| *count as f64 <= FOLDED_RANGE);
    let charged = count.filter(|count| call.lowering.charge_constant(count * width as u64).is_ok());
    let Some(count) = charged else {
        return long_range(call, dtype, [start, limit, delta].map(|number| number as f64));
    };
    let number = |at: u64| start.wrapping_add(delta.wrapping_mul(at as i64)).to_le_bytes();
    let bytes: Vec<u8> = (0..count).flat_map(|at| number(at).into_iter().take(width)).collect();
    let data = TensorData::new(dtype, [count], bytes).map_err(|error| error.to_string())?;
    one(call.lowering.add_constant(data))
}

fn trilu(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let k = match call.optional(1)? {
        Some(k) => k,
        None => call.lowering.scalar(0.0, DType::I64)?,
    };
    one(call.op("trilu", &[x, k], vec![("upper", Attr::Bool(call.int("upper", 1) != 0))])?)
}
