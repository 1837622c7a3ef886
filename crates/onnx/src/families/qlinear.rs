//! Operators on quantised operands (the QOperator format of ONNX Runtime's quantiser): the operands are dequantised, the
//! operator is that on floats, and its result is quantised again.
//!
//! Operands come with a scale and a zero point each: `QLinearAdd(a, a_scale, a_zero, b, b_scale, b_zero, scale, zero)`.

use edgecut_graph::{Attr, TensorId};

use super::{
    conv,
    linear::{general_product, product},
    pool::{averaged, in_nchw},
    quantize::{along, dequantized, requantized},
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
        unary(call, |call, x| {
            with_channels_first(call, x, |call, x| {
                let axes: Vec<usize> = (2..call.rank(x)).collect();
                call.reduce("mean", x, &axes, true)
            })
        })
    }),
    ("QLinearAveragePool", |call| {
        let padded = call.int("count_include_pad", 0) != 0;
        unary(call, |call, x| with_channels_first(call, x, |call, x| averaged(call, x, padded)))
    }),
    ("QLinearConcat", concat),
];

/// Whether a node stays one operator: not if weights have a different zero point for each channel, which ONNX allows
/// but ONNX Runtime refuses at run time.
pub(super) fn is_kept(call: &Call<'_, '_>) -> bool {
    let zero = match call.node.op_type.as_deref() {
        Some("QLinearConv") => call.optional(5).ok().flatten(),
        _ => None,
    };
    let values = zero.and_then(|zero| call.lowering.known(zero)?.to_i64s());
    values.is_none_or(|values| values.windows(2).all(|pair| pair[0] == pair[1]))
}

/// Applies `f` in the layout NCHW to `x`, whose layout is NHWC if `channels_last` is set.
fn with_channels_first(
    call: &mut Call<'_, '_>,
    x: TensorId,
    f: impl FnOnce(&mut Call<'_, '_>, TensorId) -> Result<TensorId>,
) -> Result<TensorId> {
    match call.int("channels_last", 0) {
        0 => f(call, x),
        _ => in_nchw(call, x, f),
    }
}

/// Operand `index`, dequantised; scales are vectors along `axis` at most.
fn operand(call: &mut Call<'_, '_>, index: usize, axis: usize) -> Result<TensorId> {
    let (x, scale, zero) = (call.input(index)?, call.input(index + 1)?, call.optional(index + 2)?);
    let rank = call.rank(x);
    let scale = along(call, scale, axis, rank)?;
    let zero = zero.map(|zero| along(call, zero, axis, rank)).transpose()?;
    dequantized(call, x, scale, zero)
}

/// `x` quantised with the scale and zero point that are operands from `index` on, vectors along `axis` at most. Without a
/// zero point, to the type of the first quantised operand.
fn result(call: &mut Call<'_, '_>, x: TensorId, index: usize, axis: usize) -> Result<TensorId> {
    let (scale, zero) = (call.input(index)?, call.optional(index + 1)?);
    let dtype = match zero {
        Some(zero) => call.dtype_of(zero),
        None => call.dtype_of(call.input(if index == 0 { 2 } else { 0 })?),
    };
    let rank = call.rank(x);
    let scale = along(call, scale, axis, rank)?;
    let zero = zero.map(|zero| along(call, zero, axis, rank)).transpose()?;
    requantized(call, x, scale, zero, dtype)
}

fn unary(
    call: &mut Call<'_, '_>,
    f: impl FnOnce(&mut Call<'_, '_>, TensorId) -> Result<TensorId>,
) -> Result<Vec<Value>> {
    let x = operand(call, 0, 0)?;
    let made = f(call, x)?;
    one(result(call, made, 3, 0)?)
}

fn binary(call: &mut Call<'_, '_>, name: &'static str) -> Result<Vec<Value>> {
    let (a, b) = (operand(call, 0, 0)?, operand(call, 3, 0)?);
    let made = call.map(name, &[a, b])?;
    one(result(call, made, 6, 0)?)
}

/// The bias is of int32 in units of the product of both scales.
fn convolution(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let channels = match call.int("channels_last", 0) {
        0 => 1,
        _ => call.rank(call.input(0)?).saturating_sub(1),
    };
    let (x, w) = (operand(call, 0, channels)?, operand(call, 3, 0)?);
    let made = with_channels_first(call, x, |call, x| {
        let made = conv::product(call, x, w, None)?;
        let bias = match call.optional(8)? {
            Some(bias) => Some(dequantized_bias(call, bias, 1, 4)?),
            None => None,
        };
        conv::biased(call, made, bias)
    })?;
    one(result(call, made, 6, channels)?)
}

/// A vector of int32, dequantised: its scale is the product of the scales that are operands `a` and `b`.
fn dequantized_bias(call: &mut Call<'_, '_>, bias: TensorId, a: usize, b: usize) -> Result<TensorId> {
    let (a, b) = (call.input(a)?, call.input(b)?);
    let (a, b) = (along(call, a, 0, 1)?, along(call, b, 0, 1)?);
    let scale = call.map("multiply", &[a, b])?;
    let dtype = call.dtype_of(scale);
    let bias = call.cast(bias, dtype)?;
    call.map("multiply", &[bias, scale])
}

fn matmul(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (a_rank, b_rank) = (call.rank(call.input(0)?), call.rank(call.input(3)?));
    let (a, b) = (operand(call, 0, a_rank.saturating_sub(2))?, operand(call, 3, b_rank.saturating_sub(1))?);
    let made = product(call, a, b)?;
    let rows = call.rank(made).saturating_sub(2);
    one(result(call, made, 6, rows)?)
}

/// alpha (A B + C); the result is of float without a scale for it.
fn gemm(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let columns = usize::from(call.int("transB", 0) == 0);
    let (a, b) = (operand(call, 0, 1)?, operand(call, 3, columns)?);
    let c = match call.optional(6)? {
        Some(c) => {
            let c = dequantized_bias(call, c, 1, 4)?;
            let alpha = call.float("alpha", 1.0);
            Some(if alpha == 1.0 { c } else { call.with("multiply", c, alpha)? })
        }
        None => None,
    };
    let made = general_product(call, a, b, c)?;
    match call.optional(7)? {
        Some(_) => one(result(call, made, 7, 1)?),
        None => one(made),
    }
}

/// Scale and zero point of the result, then each operand with its own.
fn concat(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let count = call.node.input.len().saturating_sub(2) / 3;
    let parts = (0..count).map(|part| operand(call, 2 + 3 * part, 0)).collect::<Result<Vec<_>>>()?;
    let first = *parts.first().ok_or("it has no operands")?;
    let axis = call.axis(call.int("axis", 0), first)?;
    let made = call.concat(&parts, axis)?;
    one(result(call, made, 0, 0)?)
}
