//! Quantisation: conversions between numbers and small integers.

use edgecut_graph::{Attr, DType, TensorId};

use crate::{
    compose::{many, one},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] =
    &[("QuantizeLinear", quantize), ("DequantizeLinear", dequantize), ("DynamicQuantizeLinear", dynamic)];

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

fn quantize(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, scale, zero) = (call.input(0)?, call.input(1)?, call.optional(2)?);
    let dtype = match (zero, call.dtype("output_dtype")?) {
        (Some(zero), _) => call.dtype_of(zero),
        (None, Some(dtype)) => dtype,
        (None, None) => DType::U8,
    };
    let rank = call.rank(x);
    let axis = if rank == 0 { 0 } else { call.axis(call.int("axis", 1).min(rank as i64 - 1), x)? };
    let wide = call.dtype_of(scale);
    let x = call.cast(x, wide)?;
    let scale = along(call, scale, axis, rank)?;
    let zero = zero.map(|zero| along(call, zero, axis, rank)).transpose()?;
    one(requantized(call, x, scale, zero, dtype)?)
}

fn dequantize(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, scale, zero) = (call.input(0)?, call.input(1)?, call.optional(2)?);
    let rank = call.rank(x);
    let axis = if rank == 0 { 0 } else { call.axis(call.int("axis", 1).min(rank as i64 - 1), x)? };
    let scale = along(call, scale, axis, rank)?;
    let zero = zero.map(|zero| along(call, zero, axis, rank)).transpose()?;
    one(dequantized(call, x, scale, zero)?)
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

/// To uint8 by the range of the data, which is made to contain 0.
fn dynamic(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axes: Vec<usize> = (0..call.rank(x)).collect();
    let zero = call.like(0.0, x)?;
    let least = call.reduce("min", x, &axes, false)?;
    let most = call.reduce("max", x, &axes, false)?;
    let (least, most) = (call.map("minimum", &[least, zero])?, call.map("maximum", &[most, zero])?);
    let span = call.map("subtract", &[most, least])?;
    let scale = call.with("divide", span, 255.0)?;
    // Zeros have the scale 1, as ONNX Runtime has it.
    let (is_flat, unit) = (call.map("equal", &[span, zero])?, call.like(1.0, x)?);
    let scale = call.map("where", &[is_flat, unit, scale])?;
    let begin = call.map("divide", &[least, scale])?;
    let begin = call.map("negative", &[begin])?;
    let begin = call.op("clip", &[begin], vec![("a_min", Attr::Float(0.0)), ("a_max", Attr::Float(255.0))])?;
    let begin = half_even(call, begin)?;
    let zero_point = call.cast(begin, DType::U8)?;
    let made = requantized(call, x, scale, Some(zero_point), DType::U8)?;
    many([made, scale, zero_point])
}
