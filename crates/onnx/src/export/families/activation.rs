//! Activations, softmax, bias additions, dropout.

use crate::export::write::Write::{self, Many, One};
use crate::{
    error::Result,
    export::{
        builder::{ModelBuilder, OnnxValue},
        scope::{Scope, axis},
    },
};
use edgecut_graph::DType;

pub(super) const OPS: &[(&str, Write)] = &[
    ("clip", One(clip)),
    ("nn.bias_add", One(bias_add)),
    ("nn.dropout", Many(dropout)),
    ("nn.fast_softmax", One(|scope| softmax(scope, "Softmax"))),
    ("nn.leaky_relu", One(leaky_relu)),
    ("nn.log_softmax", One(|scope| softmax(scope, "LogSoftmax"))),
    ("nn.prelu", One(prelu)),
    ("nn.relu", One(relu)),
    ("nn.softmax", One(|scope| softmax(scope, "Softmax"))),
];

fn relu(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    match x.dtype.is_float() {
        true if scope.call.is_onnx() => scope.builder.unary("Relu", &x),
        // ONNX Runtime fuses `Relu` with what computes its operand. Alone, an operator that makes 0 of what is not a
        // number, as TVM does.
        true if scope.is_computed.first() == Some(&true) => scope.builder.unary("Relu", &x),
        true => scope.builder.node("ThresholdedRelu", &[&x]).float("alpha", 0.0).one(x.dtype),
        false => scope.builder.with_number("Max", &x, 0.0),
    }
}

fn clip(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    let (low, high) = (scope.float("a_min", f64::MIN)?, scope.float("a_max", f64::MAX)?);
    if scope.call.is_onnx() && x.dtype.is_float() {
        let (low, high) = (scope.builder.scalar(low, x.dtype)?, scope.builder.scalar(high, x.dtype)?);
        return scope.builder.node("Clip", &[&x, &low, &high]).one(x.dtype);
    }
    clipped(scope.builder, &x, low, high)
}

/// Limits `x` to `low..=high`; the lower limit wins.
pub(super) fn clipped(builder: &mut ModelBuilder, x: &OnnxValue, low: f64, high: f64) -> Result<OnnxValue> {
    let (mut low, mut high) = (low, high);
    if !x.dtype.is_float() {
        // Limits beyond the type's range limit nothing.
        let (least, most) = range(x.dtype);
        (low, high) = (low.trunc().clamp(least, most), high.trunc().clamp(least, most));
        if x.dtype.size() == 8 {
            let whole = |limit: f64| builder.integers(&[limit as i64], x.dtype, &[]);
            let (low, high) = (whole(low)?, whole(high.max(low))?);
            return builder.node("Clip", &[x, &low, &high]).one(x.dtype);
        }
    }
    let (low, high) = (builder.scalar(low, x.dtype)?, builder.scalar(high.max(low), x.dtype)?);
    builder.node("Clip", &[x, &low, &high]).one(x.dtype)
}

/// The least and the greatest value of an integer type.
pub(super) fn range(dtype: DType) -> (f64, f64) {
    let bits = dtype.size() as i32 * 8;
    match (dtype, dtype.is_signed()) {
        (DType::Bool, _) => (0.0, 1.0),
        (_, true) => (-2f64.powi(bits - 1), 2f64.powi(bits - 1) - 1.0),
        (_, false) => (0.0, 2f64.powi(bits) - 1.0),
    }
}

fn leaky_relu(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, alpha) = (scope.x(0)?, scope.float("alpha", 0.25)?);
    scope.builder.node("LeakyRelu", &[&x]).float("alpha", alpha).one(x.dtype)
}

/// A vector along axis `at` of a tensor of rank `rank`: with axes of length 1 after it.
pub(super) fn along(builder: &mut ModelBuilder, vector: &OnnxValue, at: usize, rank: usize) -> Result<OnnxValue> {
    if at + 1 == rank {
        return Ok(vector.clone());
    }
    let length = match &vector.content {
        Some(data) => data.shape().iter().product::<u64>() as i64,
        None => -1,
    };
    let mut dims = vec![1; rank - at];
    dims[0] = length;
    builder.reshape(vector, &dims)
}

fn prelu(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, slope, rank) = (scope.x(0)?, scope.x(1)?, scope.rank(0)?);
    let at = scope.axis("axis", 1, rank)?;
    let slope = along(scope.builder, &slope, at, rank)?;
    scope.builder.binary("PRelu", &x, &slope)
}

fn bias_add(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, bias, rank) = (scope.x(0)?, scope.x(1)?, scope.rank(0)?);
    let at = scope.axis("axis", 1, rank)?;
    let bias = along(scope.builder, &bias, at, rank)?;
    scope.builder.binary("Add", &x, &bias)
}

fn softmax(scope: &mut Scope<'_>, op: &'static str) -> Result<OnnxValue> {
    let (x, rank) = (scope.x(0)?, scope.rank(0)?);
    let at = axis(scope.int("axis", -1)?, rank)?;
    scope.builder.node(op, &[&x]).int("axis", at as i64).one(x.dtype)
}

/// The identity, and a mask that keeps everything.
fn dropout(scope: &mut Scope<'_>) -> Result<Vec<OnnxValue>> {
    let x = scope.x(0)?;
    if !scope.is_read.get(1).copied().unwrap_or(false) {
        return Ok(vec![x.clone(), x]);
    }
    let dims = scope.out_dims()?;
    let one = scope.builder.scalar(1.0, x.dtype)?;
    let mask = scope.builder.expand(&one, &dims)?;
    Ok(vec![x, mask])
}
