//! Functions of one element, conversions of type, and operators that are the identity in inference.

use edgecut_graph::DType;

use crate::export::write::Write::{self, One, Unary};
use crate::{
    error::Result,
    export::{
        builder::{ModelBuilder, OnnxValue},
        scope::Scope,
    },
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("abs", Unary("Abs")),
    ("acos", Unary("Acos")),
    ("acosh", Unary("Acosh")),
    ("annotation.cast_hint", One(identity)),
    ("annotation.checkpoint", One(identity)),
    ("annotation.compiler_begin", One(identity)),
    ("annotation.compiler_end", One(identity)),
    ("annotation.stop_fusion", One(identity)),
    ("asin", Unary("Asin")),
    ("asinh", Unary("Asinh")),
    ("atan", Unary("Atan")),
    ("atanh", Unary("Atanh")),
    ("bitwise_not", One(bitwise_not)),
    ("cast", One(cast)),
    ("cast_like", One(cast)),
    ("ceil", Unary("Ceil")),
    ("copy", One(identity)),
    ("cos", Unary("Cos")),
    ("cosh", Unary("Cosh")),
    ("device_copy", One(identity)),
    ("erf", Unary("Erf")),
    ("exp", Unary("Exp")),
    ("fast_erf", Unary("Erf")),
    ("fast_exp", Unary("Exp")),
    ("fast_tanh", Unary("Tanh")),
    ("floor", Unary("Floor")),
    ("isfinite", One(isfinite)),
    ("isinf", One(|scope| predicate(scope, "IsInf"))),
    ("isnan", One(|scope| predicate(scope, "IsNaN"))),
    ("log", Unary("Log")),
    ("log10", One(|scope| log(scope, 10.0))),
    ("log2", One(|scope| log(scope, 2.0))),
    ("logical_not", One(logical_not)),
    ("negative", Unary("Neg")),
    ("on_device", One(identity)),
    ("reinterpret", One(reinterpret)),
    ("round", One(round)),
    ("rsqrt", One(rsqrt)),
    ("sigmoid", Unary("Sigmoid")),
    ("sign", Unary("Sign")),
    ("sin", Unary("Sin")),
    ("sinh", Unary("Sinh")),
    ("sqrt", Unary("Sqrt")),
    ("tan", Unary("Tan")),
    ("tanh", Unary("Tanh")),
    ("trunc", One(trunc)),
];

/// The operand itself, under another name.
pub(super) fn identity(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    scope.x(0)
}

fn cast(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, dtype) = (scope.x(0)?, scope.out()?.dtype);
    scope.builder.cast(&x, dtype)
}

fn reinterpret(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, dtype) = (scope.x(0)?, scope.out()?.dtype);
    if x.dtype == dtype {
        return Ok(x);
    }
    let is_integer = |dtype: DType| dtype.is_integer() && dtype != DType::Bool;
    match is_integer(x.dtype) && is_integer(dtype) {
        true => scope.builder.cast(&x, dtype),
        false => Err(format!("operator set {} cannot reinterpret {} as {dtype}", crate::export::OPSET, x.dtype)),
    }
}

fn log(scope: &mut Scope<'_>, base: f64) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    let natural = scope.builder.unary("Log", &x)?;
    scope.builder.with_number("Mul", &natural, 1.0 / base.ln())
}

fn rsqrt(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    let root = scope.builder.unary("Sqrt", &x)?;
    scope.builder.unary("Reciprocal", &root)
}

fn trunc(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    truncated(scope.builder, &x)
}

/// Rounds towards zero.
pub(super) fn truncated(builder: &mut ModelBuilder, x: &OnnxValue) -> Result<OnnxValue> {
    if !x.dtype.is_float() {
        return Ok(x.clone());
    }
    toward_zero(builder, x)
}

/// Rounds halves away from zero, where ONNX's `Round` rounds them to even: what was ONNX's is again.
fn round(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    match x.dtype.is_float() {
        true if scope.call.is_onnx() => scope.builder.unary("Round", &x),
        true => round_half_away(scope.builder, &x),
        false => Ok(x),
    }
}

/// Rounds floats, halves away from zero: a half is exactly that far from the even number that `Round` makes of it.
pub(super) fn round_half_away(builder: &mut ModelBuilder, x: &OnnxValue) -> Result<OnnxValue> {
    let even = builder.unary("Round", x)?;
    let apart = builder.binary("Sub", x, &even)?;
    let apart = builder.unary("Abs", &apart)?;
    let half = builder.scalar(0.5, x.dtype)?;
    let is_half = builder.compare("Equal", &apart, &half)?;
    let sign = builder.unary("Sign", x)?;
    let step = builder.binary("Mul", &sign, &half)?;
    let away = builder.binary("Add", x, &step)?;
    builder.choose(&is_half, &away, &even)
}

/// `sign(x) · ⌊|x|⌋`.
fn toward_zero(builder: &mut ModelBuilder, x: &OnnxValue) -> Result<OnnxValue> {
    let (sign, size) = (builder.unary("Sign", x)?, builder.unary("Abs", x)?);
    let size = builder.unary("Floor", &size)?;
    builder.binary("Mul", &size, &sign)
}

fn predicate(scope: &mut Scope<'_>, op: &'static str) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    match x.dtype.is_float() {
        true => scope.builder.node(op, &[&x]).one(DType::Bool),
        // Integers are neither infinite nor undefined.
        false => scope.builder.node("Less", &[&x, &x]).one(DType::Bool),
    }
}

fn isfinite(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    let zero = scope.builder.with_number("Mul", &x, 0.0)?;
    // Infinities times zero, and NaN, are NaN, which equals nothing.
    scope.builder.compare("Equal", &zero, &zero)
}

fn logical_not(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, dtype) = (scope.x(0)?, scope.out()?.dtype);
    let x = scope.builder.cast(&x, DType::Bool)?;
    let not = scope.builder.unary("Not", &x)?;
    scope.builder.cast(&not, dtype)
}

fn bitwise_not(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    match x.dtype {
        DType::Bool => scope.builder.unary("Not", &x),
        _ => scope.builder.unary("BitwiseNot", &x),
    }
}
