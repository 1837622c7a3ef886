//! Normalisations.

use super::activation::along;
use crate::export::write::Write::{self, Many, One};
use crate::{
    error::Result,
    export::{
        builder::{ModelBuilder, OnnxValue},
        scope::Scope,
    },
};
use edgecut_graph::DType;

pub(super) const OPS: &[(&str, Write)] = &[
    ("nn.batch_norm", Many(batch_norm)),
    ("nn.group_norm", One(group_norm)),
    ("nn.instance_norm", One(instance_norm)),
    ("nn.l2_normalize", One(l2_normalize)),
    ("nn.layer_norm", One(layer_norm)),
    ("nn.lrn", One(lrn)),
];

/// A constant vector of `length` equal numbers.
fn filled(builder: &ModelBuilder, value: f64, length: i64, dtype: DType) -> Result<OnnxValue> {
    builder.list_of(&vec![value; length as usize], dtype, &[length as u64])
}

/// Scale and shift, which count as 1 and 0 where the attributes switch them off.
fn affine(scope: &Scope<'_>) -> Result<(OnnxValue, OnnxValue)> {
    let (gamma, beta) = (scope.x(1)?, scope.x(2)?);
    let length = scope.dims(1)?.iter().product();
    let gamma = if scope.flag("scale", true)? { gamma } else { filled(scope.builder, 1.0, length, gamma.dtype)? };
    let beta = if scope.flag("center", true)? { beta } else { filled(scope.builder, 0.0, length, beta.dtype)? };
    Ok((gamma, beta))
}

fn batch_norm(scope: &mut Scope<'_>) -> Result<Vec<OnnxValue>> {
    let (x, mean, variance, rank) = (scope.x(0)?, scope.x(3)?, scope.x(4)?, scope.rank(0)?);
    let (at, epsilon) = (scope.axis("axis", 1, rank)?, scope.float("epsilon", 1e-5)?);
    let (gamma, beta) = affine(scope)?;
    if at == 1 {
        let node = scope.builder.node("BatchNormalization", &[&x, &gamma, &beta, &mean, &variance]);
        let y = node.float("epsilon", epsilon).one(x.dtype)?;
        return Ok(vec![y, mean, variance]);
    }
    // Channels elsewhere: a scale and a shift, which runtimes compute when they load constant statistics.
    let builder = &mut *scope.builder;
    let shifted = builder.with_number("Add", &variance, epsilon)?;
    let deviation = builder.unary("Sqrt", &shifted)?;
    let scale = builder.binary("Div", &gamma, &deviation)?;
    let moved = builder.binary("Mul", &mean, &scale)?;
    let shift = builder.binary("Sub", &beta, &moved)?;
    let (scale, shift) = (along(builder, &scale, at, rank)?, along(builder, &shift, at, rank)?);
    let scaled = builder.binary("Mul", &x, &scale)?;
    Ok(vec![builder.binary("Add", &scaled, &shift)?, mean, variance])
}

/// `(x − mean) / √(variance + ε)` over `axes`.
fn standardised(builder: &mut ModelBuilder, x: &OnnxValue, axes: &[usize], epsilon: f64) -> Result<OnnxValue> {
    let mean = builder.reduce("ReduceMean", x, axes, true)?;
    let centred = builder.binary("Sub", x, &mean)?;
    let squares = builder.binary("Mul", &centred, &centred)?;
    let variance = builder.reduce("ReduceMean", &squares, axes, true)?;
    let variance = builder.with_number("Add", &variance, epsilon)?;
    let deviation = builder.unary("Sqrt", &variance)?;
    builder.binary("Div", &centred, &deviation)
}

fn scaled(
    builder: &mut ModelBuilder,
    x: &OnnxValue,
    gamma: &OnnxValue,
    beta: &OnnxValue,
    at: usize,
    rank: usize,
) -> Result<OnnxValue> {
    let (gamma, beta) = (along(builder, gamma, at, rank)?, along(builder, beta, at, rank)?);
    let scaled = builder.binary("Mul", x, &gamma)?;
    builder.binary("Add", &scaled, &beta)
}

fn layer_norm(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, rank) = (scope.x(0)?, scope.rank(0)?);
    let (at, epsilon) = (scope.axis("axis", -1, rank)?, scope.float("epsilon", 1e-5)?);
    let (gamma, beta) = affine(scope)?;
    if at + 1 == rank {
        let node = scope.builder.node("LayerNormalization", &[&x, &gamma, &beta]);
        return node.int("axis", -1).float("epsilon", epsilon).one(x.dtype);
    }
    let normal = standardised(scope.builder, &x, &[at], epsilon)?;
    scaled(scope.builder, &normal, &gamma, &beta, at, rank)
}

fn instance_norm(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, rank) = (scope.x(0)?, scope.rank(0)?);
    let (at, epsilon) = (scope.axis("axis", 1, rank)?, scope.float("epsilon", 1e-5)?);
    let (gamma, beta) = affine(scope)?;
    if at == 1 && x.dtype != DType::F64 {
        let node = scope.builder.node("InstanceNormalization", &[&x, &gamma, &beta]);
        return node.float("epsilon", epsilon).one(x.dtype);
    }
    let axes: Vec<usize> = (1..rank).filter(|axis| *axis != at).collect();
    let normal = standardised(scope.builder, &x, &axes, epsilon)?;
    scaled(scope.builder, &normal, &gamma, &beta, at, rank)
}

fn group_norm(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, rank, dims) = (scope.x(0)?, scope.rank(0)?, scope.dims(0)?);
    let (at, epsilon) = (scope.axis("axis", 1, rank)?, scope.float("epsilon", 1e-5)?);
    let groups = scope.int("num_groups", 0)?;
    if groups < 1 || dims[at] % groups != 0 {
        return Err(format!("{} channels in {groups} groups", dims[at]));
    }
    let (gamma, beta) = affine(scope)?;
    let mut split = dims.clone();
    split.splice(at..=at, [groups, dims[at] / groups]);
    let axes: Vec<usize> = (1..split.len()).filter(|axis| *axis != at).collect();
    let x = scope.builder.reshape(&x, &split)?;
    let normal = standardised(scope.builder, &x, &axes, epsilon)?;
    let normal = scope.builder.reshape(&normal, &dims)?;
    scaled(scope.builder, &normal, &gamma, &beta, at, rank)
}

fn l2_normalize(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, rank, epsilon) = (scope.x(0)?, scope.rank(0)?, scope.float("eps", 0.0)?);
    let axes = scope.axes("axis", rank)?.unwrap_or_default();
    let builder = &mut *scope.builder;
    let squares = builder.binary("Mul", &x, &x)?;
    let sum = builder.reduce("ReduceSum", &squares, &axes, true)?;
    let sum = builder.with_number("Max", &sum, epsilon)?;
    let norm = builder.unary("Sqrt", &sum)?;
    builder.binary("Div", &x, &norm)
}

fn lrn(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, rank) = (scope.x(0)?, scope.rank(0)?);
    let at = scope.axis("axis", 1, rank)?;
    let mut order: Vec<usize> = (0..rank).collect();
    if rank < 2 {
        return Err("a tensor of rank 1".to_string());
    }
    order.swap(1, at);
    let turned = scope.builder.transpose(&x, &order)?;
    let (size, bias) = (scope.int("size", 5)?, scope.float("bias", 2.0)?);
    let (alpha, beta) = (scope.float("alpha", 1e-4)?, scope.float("beta", 0.75)?);
    let node = scope.builder.node("LRN", &[&turned]).int("size", size).float("bias", bias);
    let y = node.float("alpha", alpha).float("beta", beta).one(x.dtype)?;
    scope.builder.transpose(&y, &order)
}
