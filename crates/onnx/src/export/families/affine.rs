//! Quantised operators with ONNX's semantics, each as the node that it was read from.

use edgecut_graph::DType;

use super::conv::{Convolution, windowed};
use crate::{
    error::Result,
    export::{
        builder::{ModelBuilder, OnnxValue},
        scope::{Scope, axis},
    },
};

/// The first operator sets that allow half-precision scales and data, and quantised data of 16 bits.
const HALF: i64 = 19;
const SIXTEEN_BITS: i64 = 21;

pub(super) fn quantize(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let dtype = scope.out()?.dtype;
    let mut operands = operands(scope)?;
    // Until set 23 data and scales have one type.
    operands[0] = scope.builder.cast(&operands[0], operands[1].dtype)?;
    if operands.len() < 3 && dtype != DType::U8 {
        let dims = scope.dims(1)?;
        let count = dims.iter().product::<i64>().max(0) as usize;
        let dims: Vec<u64> = dims.into_iter().map(|size| size as u64).collect();
        operands.push(scope.builder.list_of(&vec![0.0; count], dtype, &dims)?);
    }
    converted(scope, "QuantizeLinear", &operands, dtype, dtype)
}

pub(super) fn dequantize(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let operands = operands(scope)?;
    let (quantised, made) = (operands[0].dtype, operands[1].dtype);
    let real = converted(scope, "DequantizeLinear", &operands, quantised, made)?;
    let dtype = scope.out()?.dtype;
    scope.builder.cast(&real, dtype)
}

/// Data, scale and, where there is one, zero point.
fn operands(scope: &Scope<'_>) -> Result<Vec<OnnxValue>> {
    (0..scope.args.len().max(2)).map(|at| scope.x(at)).collect()
}

/// A conversion between floats and quantised elements of type `quantised`, to elements of type `made`.
fn converted(
    scope: &mut Scope<'_>,
    op: &'static str,
    operands: &[OnnxValue],
    quantised: DType,
    made: DType,
) -> Result<OnnxValue> {
    let rank = scope.rank(0)?;
    let count = |at: usize| scope.ty(at).ok().and_then(|ty| ty.shape.elements());
    let is_vector = (1..scope.args.len()).any(|at| count(at) != Some(1));
    let axis = if is_vector { Some(axis(scope.int("axis", -1)?, rank)?) } else { None };
    if [DType::U16, DType::I16].contains(&quantised) {
        scope.builder.require("", SIXTEEN_BITS);
    } else if operands[1].dtype == DType::F16 {
        scope.builder.require("", HALF);
    }
    let node = scope.builder.node(op, &operands.iter().collect::<Vec<_>>());
    match axis {
        Some(axis) => node.int("axis", axis as i64).one(made),
        None => node.one(made),
    }
}

pub(super) fn dynamic_quantize(scope: &mut Scope<'_>) -> Result<Vec<OnnxValue>> {
    let x = scope.x(0)?;
    scope.builder.node("DynamicQuantizeLinear", &[&x]).many(&[DType::U8, DType::F32, DType::U8])
}

pub(super) fn matmul(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (a, b, zeros) = (scope.x(0)?, scope.x(1)?, zero_points(scope)?);
    scope.builder.node("MatMulInteger", &[&a, &b, &zeros[0], &zeros[1]]).one(DType::I32)
}

pub(super) fn conv(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let conv = Convolution::read(scope, 2)?;
    let zeros = zero_points(scope)?;
    let operands = [&conv.x, &conv.weight, &zeros[0], &zeros[1]];
    let y = windowed(scope.builder, "ConvInteger", &operands, &conv).one(DType::I32)?;
    conv.stored(scope, &y)
}

/// Operands 2 and 3, absent where they are known to be 0.
fn zero_points(scope: &Scope<'_>) -> Result<[OnnxValue; 2]> {
    let point = |at: usize, builder: &ModelBuilder| -> Result<OnnxValue> {
        if at >= scope.args.len() {
            return Ok(builder.absent());
        }
        let point = scope.x(at)?;
        let known = point.content.as_ref().and_then(|content| content.to_i64s());
        Ok(if known.is_some_and(|known| known.iter().all(|zero| *zero == 0)) { builder.absent() } else { point })
    };
    Ok([point(2, scope.builder)?, point(3, scope.builder)?])
}
