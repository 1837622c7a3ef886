//! Random operators: the first run of a session draws the same numbers as the graph's operator, later runs continue the
//! stream.

use edgecut_graph::DType;

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
    tensor::element_type,
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("random_normal", One(|scope| filled(scope, "RandomNormal", ["mean", "scale"]))),
    ("random_normal_like", One(|scope| like(scope, "RandomNormalLike", ["mean", "scale"]))),
    ("random_uniform", One(|scope| filled(scope, "RandomUniform", ["low", "high"]))),
    ("random_uniform_like", One(|scope| like(scope, "RandomUniformLike", ["low", "high"]))),
];

fn filled(scope: &mut Scope<'_>, op: &'static str, distribution: [&'static str; 2]) -> Result<OnnxValue> {
    let shape = scope.out_dims()?;
    drawn(scope, op, None, distribution, Some(&shape))
}

fn like(scope: &mut Scope<'_>, op: &'static str, distribution: [&'static str; 2]) -> Result<OnnxValue> {
    let x = scope.x(0)?;
    drawn(scope, op, Some(&x), distribution, None)
}

/// Absent attributes stay absent: their defaults are ONNX's.
fn drawn(
    scope: &mut Scope<'_>,
    op: &'static str,
    operand: Option<&OnnxValue>,
    distribution: [&'static str; 2],
    shape: Option<&[i64]>,
) -> Result<OnnxValue> {
    let dtype = scope.out()?.dtype;
    // Without an operand of half precision, ONNX Runtime converts nothing.
    let drawn = if dtype == DType::F16 && operand.is_none() { DType::F32 } else { dtype };
    let numbers: Vec<(&str, f64)> = distribution
        .into_iter()
        .chain(["seed"])
        .filter(|key| scope.attr(key).is_some())
        .map(|key| Ok((key, scope.float(key, 0.0)?)))
        .collect::<Result<_>>()?;
    let operands: Vec<&OnnxValue> = operand.into_iter().collect();
    let mut node = scope.builder.node(op, &operands).int("dtype", element_type(drawn)?.into());
    if let Some(shape) = shape {
        node = node.ints("shape", shape);
    }
    for (key, number) in numbers {
        node = node.float(key, number);
    }
    let made = node.one(drawn)?;
    scope.builder.cast(&made, dtype)
}
