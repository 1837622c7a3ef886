//! Quantisation: conversions between numbers and small integers.

use edgecut_graph::{Arg, Attr, DType, TensorId};

use crate::{
    compose::{many, one, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] =
    &[("QuantizeLinear", quantize), ("DequantizeLinear", dequantize), ("DynamicQuantizeLinear", dynamic)];

/// Whether a node stays one operator: if its scales are of blocks, which the graph's conversions do not have.
pub(super) fn is_kept(call: &Call<'_, '_>) -> bool {
    call.int("block_size", 0) != 0
}

/// A scale or zero point with the axes that broadcast it along `axis` of a tensor of `rank` dimensions.
pub(super) fn along(call: &mut Call<'_, '_>, v: TensorId, axis: usize, rank: usize) -> Result<TensorId> {
    match call.dims(v)?[..] {
        [] => Ok(v),
        [1] => call.reshape(v, &[]),
        [_] => {
            let trailing = rank.saturating_sub(axis + 1);
            call.expand(v, 1, trailing)
        }
        _ => Err("scales of blocks are not supported".to_string()),
    }
}

fn range(dtype: DType) -> Result<(f64, f64)> {
    Ok(match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        other => return Err(format!("quantised elements of type {other} are not supported")),
    })
}

/// saturate(round(x / scale) + zero point), halves rounded to even numbers.
pub(super) fn requantized(
    call: &mut Call<'_, '_>,
    x: TensorId,
    scale: TensorId,
    zero: Option<TensorId>,
    dtype: DType,
) -> Result<TensorId> {
    let scaled = call.map("divide", &[x, scale])?;
    let rounded = half_even(call, scaled)?;
    // Half precision holds neither all integers of 16 bits nor sums with their zero points.
    let is_half = matches!(call.dtype_of(rounded), DType::F16 | DType::Bf16);
    let rounded = if is_half { call.cast(rounded, DType::F32)? } else { rounded };
    let shifted = match zero {
        Some(zero) => {
            let wide = call.dtype_of(rounded);
            let zero = call.cast(zero, wide)?;
            call.map("add", &[rounded, zero])?
        }
        None => rounded,
    };
    let (low, high) = range(dtype)?;
    let clipped = call.op("clip", &[shifted], vec![("a_min", Attr::Float(low)), ("a_max", Attr::Float(high))])?;
    call.cast(clipped, dtype)
}

fn half_even(call: &mut Call<'_, '_>, x: TensorId) -> Result<TensorId> {
    super::elementwise::half_even(call, x)
}

/// The axis of scales and zero points, which are scalars or vectors.
fn vector_axis(call: &Call<'_, '_>, x: TensorId, parameters: &[TensorId]) -> Result<i64> {
    if parameters.iter().any(|parameter| call.rank(*parameter) > 1) {
        return Err("several scales along more than one axis need a block_size".to_string());
    }
    let axis = match call.rank(x) {
        0 => -1,
        rank => call.axis(call.int("axis", 1).min(rank as i64 - 1), x)? as i64,
    };
    let length = usize::try_from(axis).ok().and_then(|axis| call.dims(x).ok()?.get(axis).copied()).unwrap_or(1);
    for parameter in parameters {
        let count = call.ty(*parameter).shape.elements();
        if count != Some(1) && count != Some(length) {
            return Err(format!("a scale or zero point is {}, expected one number or {length}", call.ty(*parameter)));
        }
    }
    Ok(axis)
}

/// A scale or zero point for each element of `x`, from those of blocks along an axis, of which the last may be shorter.
fn of_elements(call: &mut Call<'_, '_>, x: TensorId, parameter: TensorId) -> Result<TensorId> {
    let (axis, block) = (call.axis(call.int("axis", 1), x)?, call.int("block_size", 0));
    let (shape, blocks) = (call.dims(x)?, call.dims(parameter)?);
    let size = u64::try_from(block).ok().filter(|size| *size > 0).ok_or_else(|| format!("block_size is {block}"))?;
    let fits = blocks.len() == shape.len()
        && (0..shape.len()).all(|at| blocks[at] == if at == axis { shape[at].div_ceil(size) } else { shape[at] });
    if !fits {
        return Err(format!("{} has scales of blocks of {size} for {}", call.ty(parameter), call.ty(x)));
    }
    // A block may be larger than the axis.
    let repeats = Attr::Int(size.min(shape[axis]) as i64);
    let repeated = call.op("repeat", &[parameter], vec![("repeats", repeats), ("axis", Attr::Int(axis as i64))])?;
    match call.dims(repeated)?[axis] == shape[axis] {
        true => Ok(repeated),
        false => call.slice(repeated, axis, 0, shape[axis]),
    }
}

/// The operator `name` on data, scale and zero point, with results of `dtype`.
fn converted(call: &mut Call<'_, '_>, name: &'static str, dtype: DType) -> Result<Vec<Value>> {
    let (x, scale, zero) = (call.input(0)?, call.input(1)?, call.optional(2)?);
    let parameters: Vec<TensorId> = [Some(scale), zero].into_iter().flatten().collect();
    let axis = vector_axis(call, x, &parameters)?;
    let operands: Vec<TensorId> = [x].into_iter().chain(parameters).collect();
    one(call.op(name, &operands, vec![("out_dtype", text(&dtype.to_string())), ("axis", Attr::Int(axis))])?)
}

fn quantize(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let dtype = match (call.optional(2)?, call.dtype("output_dtype")?) {
        (Some(zero), _) => call.dtype_of(zero),
        (None, Some(dtype)) => dtype,
        (None, None) => DType::U8,
    };
    range(dtype)?;
    if is_kept(call) {
        let (x, scale) = (call.input(0)?, call.input(1)?);
        let scale = of_elements(call, x, scale)?;
        let zero = call.optional(2)?.map(|zero| of_elements(call, x, zero)).transpose()?;
        return one(requantized(call, x, scale, zero, dtype)?);
    }
    converted(call, "qnn.quantize", dtype)
}

fn dequantize(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    range(call.dtype_of(call.input(0)?))?;
    let stated = call.dtype("output_dtype")?;
    let dtype = stated.unwrap_or(call.dtype_of(call.input(1)?));
    if is_kept(call) {
        let (x, scale) = (call.input(0)?, call.input(1)?);
        let scale = of_elements(call, x, scale)?;
        let zero = call.optional(2)?.map(|zero| of_elements(call, x, zero)).transpose()?;
        let made = dequantized(call, x, scale, zero)?;
        return one(call.cast(made, dtype)?);
    }
    converted(call, "qnn.dequantize", dtype)
}

/// (x - zero point) scale.
pub(super) fn dequantized(
    call: &mut Call<'_, '_>,
    x: TensorId,
    scale: TensorId,
    zero: Option<TensorId>,
) -> Result<TensorId> {
    let dtype = call.dtype_of(scale);
    let mut wide = call.cast(x, DType::I32)?;
    if let Some(zero) = zero {
        let zero = call.cast(zero, DType::I32)?;
        wide = call.map("subtract", &[wide, zero])?;
    }
    // Integers beyond the range of half precision have products in it.
    let is_half = matches!(dtype, DType::F16 | DType::Bf16);
    let computed = if is_half { DType::F32 } else { dtype };
    let (wide, scale) = (call.cast(wide, computed)?, call.cast(scale, computed)?);
    let made = call.map("multiply", &[wide, scale])?;
    call.cast(made, dtype)
}

fn dynamic(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    many(call.lowering.add("qnn.dynamic_quantize", vec![Arg::Tensor(x)], Vec::new())?)
}
