//! Products of matrices.

use edgecut_graph::DType;

use super::conv::{is_byte, multiplied_in};
use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, layout::BlockedLayout, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("einsum", One(einsum)),
    ("nn.batch_matmul", One(batch_matmul)),
    ("nn.contrib_dense_pack", One(dense_pack)),
    ("nn.dense", One(dense)),
    ("nn.matmul", One(matmul)),
];

fn einsum(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (operands, dtype) = (scope.tuple(0)?, scope.out()?.dtype);
    let equation = scope.text("equation", "")?;
    let operands: Vec<&OnnxValue> = operands.iter().collect();
    scope.builder.node("Einsum", &operands).text("equation", equation).one(dtype)
}

pub(super) fn dense(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, weight) = (scope.x(0)?, scope.x(1)?);
    product(scope, &x, &weight, false, true)
}

fn matmul(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, weight) = (scope.x(0)?, scope.x(1)?);
    let (a, b) = (scope.flag("transpose_a", false)?, scope.flag("transpose_b", false)?);
    product(scope, &x, &weight, a, b)
}

pub(super) fn batch_matmul(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b) = (scope.x(0)?, scope.x(1)?);
    let (left, right) = (scope.flag("transpose_a", false)?, scope.flag("transpose_b", false)?);
    multiplied(scope, &a, &b, left, right)
}

/// A product of matrices, of which the second has rank 2.
fn product(scope: &mut Scope<'_>, a: &OnnxValue, b: &OnnxValue, left: bool, right: bool) -> Result<OnnxValue> {
    let dtype = scope.out()?.dtype;
    let is_plain = !left && !right && scope.bias.is_none();
    if !dtype.is_float() || scope.rank(0)? != 2 || is_plain {
        return multiplied(scope, a, b, left, right);
    }
    let (a, b) = (scope.builder.cast(a, dtype)?, scope.builder.cast(b, dtype)?);
    let bias = scope.bias.clone();
    let inputs: Vec<&OnnxValue> = [Some(&a), Some(&b), bias.as_ref()].into_iter().flatten().collect();
    let mut node = scope.builder.node("Gemm", &inputs);
    if left {
        node = node.int("transA", 1);
    }
    if right {
        node = node.int("transB", 1);
    }
    node.one(dtype)
}

/// A product of stacks of matrices.
fn multiplied(scope: &mut Scope<'_>, a: &OnnxValue, b: &OnnxValue, left: bool, right: bool) -> Result<OnnxValue> {
    let dtype = scope.out()?.dtype;
    let mut operands = Vec::new();
    for (index, (value, turned)) in [(a, left), (b, right)].into_iter().enumerate() {
        let rank = scope.rank(index)?;
        let mut axes: Vec<usize> = (0..rank).collect();
        if turned && rank >= 2 {
            axes.swap(rank - 2, rank - 1);
        }
        let mut operand = scope.builder.transpose(value, &axes)?;
        // ONNX Runtime packs constant matrices, but not stacks of them, when it prepares a session.
        if index == 1
            && (3..=scope.rank(0)?).contains(&rank)
            && let Ok(dims) = scope.dims(index)
            && dims[..rank - 2].iter().all(|dim| *dim == 1)
        {
            let [rows, columns] = [axes[rank - 2], axes[rank - 1]].map(|axis| dims[axis]);
            operand = scope.builder.reshape(&operand, &[rows, columns])?;
        }
        operands.push(operand);
    }
    let [a, b] = &operands[..] else { return Err("a product has two operands".to_string()) };
    if is_byte(a.dtype) && is_byte(b.dtype) && dtype == DType::I32 {
        return scope.builder.node("MatMulInteger", &[a, b]).one(dtype);
    }
    let wide = if dtype.is_float() { dtype } else { multiplied_in(dtype) };
    let (a, b) = (scope.builder.cast(a, wide)?, scope.builder.cast(b, wide)?);
    let product = scope.builder.matmul(&a, &b)?;
    scope.builder.cast(&product, dtype)
}

/// A dense layer with a weight in blocks, such as `NC8n`.
fn dense_pack(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, weight) = (scope.x(0)?, scope.x(1)?);
    let layout = BlockedLayout::parse(scope.text("weight_layout", "NC8n")?)?;
    let (stored, out) = (scope.dims(1)?, scope.out_dims()?);
    let weight = layout.unpack(scope.builder, &weight, Some(&stored), "NC")?;
    let (rows, units) = (layout.size(&stored, 'N'), out.last().copied());
    let weight = match units {
        Some(units) if rows != Some(units) => scope.builder.range(&weight, 0, 0, units)?,
        _ => weight,
    };
    let axes = [1, 0];
    let weight = scope.builder.transpose(&weight, &axes)?;
    let dtype = scope.out()?.dtype;
    let (x, weight) = (scope.builder.cast(&x, dtype)?, scope.builder.cast(&weight, dtype)?);
    scope.builder.matmul(&x, &weight)
}
