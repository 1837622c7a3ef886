//! Operators on quantised operands (the QOperator format of ONNX Runtime's quantiser): their operands as numbers, the
//! operator on numbers, and its result quantised.
//!
//! Operands come with a scale and a zero point each: `QLinearAdd(a, a_scale, a_zero, b, b_scale, b_zero, scale, zero)`.

use edgecut_graph::{Attr, TensorId};

use super::{
    conv,
    linear::product,
    pool::averaged,
    quantize::{along, to_integers, to_numbers},
};
use crate::{
    compose::one,
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("QLinearConv", convolution),
    ("QLinearMatMul", matmul),
    ("QGemm", gemm),
    ("QLinearAdd", |call| binary(call, "add")),
    ("QLinearMul", |call| binary(call, "multiply")),
    ("QLinearSigmoid", |call| unary(call, |call, x| call.map("sigmoid", &[x]))),
    ("QLinearLeakyRelu", |call| {
        let alpha = call.float("alpha", 0.01);
        unary(call, |call, x| call.op("nn.leaky_relu", &[x], vec![("alpha", Attr::Float(alpha))]))
    }),
    ("QLinearSoftmax", |call| {
        // The operator set that the axis is meant in is an attribute, too.
        let axis = call.int("axis", -1);
        unary(call, |call, x| {
            let axis = call.axis(axis, x)?;
            if call.int("opset", 13) < 13 && axis + 1 != call.rank(x) {
                return Err("a softmax over several axes is not supported".to_string());
            }
            call.op("nn.softmax", &[x], vec![("axis", Attr::Int(axis as i64))])
        })
    }),
    ("QLinearGlobalAveragePool", |call| {
        channels_first(call)?;
        unary(call, |call, x| {
            let axes: Vec<usize> = (2..call.rank(x)).collect();
            call.reduce("mean", x, &axes, true)
        })
    }),
    ("QLinearAveragePool", |call| {
        channels_first(call)?;
        let padded = call.int("count_include_pad", 0) != 0;
        unary(call, |call, x| averaged(call, x, padded))
    }),
    ("QLinearConcat", concat),
];

fn channels_first(call: &Call<'_, '_>) -> Result<()> {
    match call.int("channels_last", 0) {
        0 => Ok(()),
        _ => Err("channels last is not supported".to_string()),
    }
}

/// Operand `index` as numbers; scales are vectors along `axis` at most.
fn number(call: &mut Call<'_, '_>, index: usize, axis: usize) -> Result<TensorId> {
    let (x, scale, zero) = (call.input(index)?, call.input(index + 1)?, call.optional(index + 2)?);
    let rank = call.rank(x);
    let scale = along(call, scale, axis, rank)?;
    let zero = zero.map(|zero| along(call, zero, axis, rank)).transpose()?;
    to_numbers(call, x, scale, zero)
}

/// `x` quantised with the scale and zero point that are operands from `index` on, vectors along `axis` at most. Without a
/// zero point, to the type of the first quantised operand.
fn quantised(call: &mut Call<'_, '_>, x: TensorId, index: usize, axis: usize) -> Result<TensorId> {
    let (scale, zero) = (call.input(index)?, call.optional(index + 1)?);
    let dtype = match zero {
        Some(zero) => call.dtype_of(zero),
        None => call.dtype_of(call.input(if index == 0 { 2 } else { 0 })?),
    };
    let rank = call.rank(x);
    let scale = along(call, scale, axis, rank)?;
    let zero = zero.map(|zero| along(call, zero, axis, rank)).transpose()?;
    to_integers(call, x, scale, zero, dtype)
}

fn unary(
    call: &mut Call<'_, '_>,
    f: impl FnOnce(&mut Call<'_, '_>, TensorId) -> Result<TensorId>,
) -> Result<Vec<Value>> {
    let x = number(call, 0, 0)?;
    let made = f(call, x)?;
    one(quantised(call, made, 3, 0)?)
}

fn binary(call: &mut Call<'_, '_>, name: &'static str) -> Result<Vec<Value>> {
    let (a, b) = (number(call, 0, 0)?, number(call, 3, 0)?);
    let made = call.map(name, &[a, b])?;
    one(quantised(call, made, 6, 0)?)
}

/// The bias is of int32 in units of the product of both scales.
fn convolution(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, w) = (number(call, 0, 1)?, number(call, 3, 0)?);
    let made = conv::product(call, x, w, None)?;
    let bias = match call.optional(8)? {
        Some(bias) => Some(bias_number(call, bias, 1, 4)?),
        None => None,
    };
    let made = conv::biased(call, made, bias)?;
    one(quantised(call, made, 6, 1)?)
}

/// A vector of int32 as numbers, in units of the product of the scales that are operands `a` and `b`.
fn bias_number(call: &mut Call<'_, '_>, bias: TensorId, a: usize, b: usize) -> Result<TensorId> {
    let (a, b) = (call.input(a)?, call.input(b)?);
    let (a, b) = (along(call, a, 0, 1)?, along(call, b, 0, 1)?);
    let scale = call.map("multiply", &[a, b])?;
    let dtype = call.dtype_of(scale);
    let bias = call.cast(bias, dtype)?;
    call.map("multiply", &[bias, scale])
}

fn matmul(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (a_rank, b_rank) = (call.rank(call.input(0)?), call.rank(call.input(3)?));
    let (a, b) = (number(call, 0, a_rank.saturating_sub(2))?, number(call, 3, b_rank.saturating_sub(1))?);
    let made = product(call, a, b)?;
    let rows = call.rank(made).saturating_sub(2);
    one(quantised(call, made, 6, rows)?)
}

/// alpha A B + C; the result is of float without a scale for it.
fn gemm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (turns_a, turns_b) = (call.int("transA", 0) != 0, call.int("transB", 0) != 0);
    let (a, b) = (number(call, 0, 1)?, number(call, 3, usize::from(!turns_b))?);
    let a = if turns_a { call.transpose(a, &[1, 0])? } else { a };
    let b = if turns_b { b } else { call.transpose(b, &[1, 0])? };
    let units = call.dims(b)?.first().copied().unwrap_or(0);
    let mut made = call.op("nn.dense", &[a, b], vec![("units", Attr::Int(units as i64))])?;
    let alpha = call.float("alpha", 1.0);
    if alpha != 1.0 {
        made = call.with("multiply", made, alpha)?;
    }
    if let Some(c) = call.optional(6)? {
        let mut c = bias_number(call, c, 1, 4)?;
        if alpha != 1.0 {
            c = call.with("multiply", c, alpha)?;
        }
        made = call.map("add", &[made, c])?;
    }
    match call.optional(7)? {
        Some(_) => one(quantised(call, made, 7, 1)?),
        None => one(made),
    }
}

/// Scale and zero point of the result, then each operand with its own.
fn concat(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let count = call.node.input.len().saturating_sub(2) / 3;
    let parts = (0..count).map(|part| number(call, 2 + 3 * part, 0)).collect::<Result<Vec<_>>>()?;
    let first = *parts.first().ok_or("it has no operands")?;
    let axis = call.axis(call.int("axis", 0), first)?;
    let made = call.concat(&parts, axis)?;
    one(quantised(call, made, 0, 0)?)
}
