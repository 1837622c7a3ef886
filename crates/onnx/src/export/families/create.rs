//! Tensors made of shapes and scalars.

use edgecut_graph::DType;

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("arange", One(arange)),
    ("dyn.ones", One(|scope| constant(scope, 1.0))),
    ("dyn.zeros", One(|scope| constant(scope, 0.0))),
    ("full", One(|scope| full(scope, 0))),
    ("full_like", One(|scope| full(scope, 1))),
    ("ndarray_size", One(size)),
    ("ones", One(|scope| constant(scope, 1.0))),
    ("ones_like", One(|scope| like(scope, 1.0))),
    ("shape_of", One(shape_of)),
    ("vm.shape_of", One(shape_of)),
    ("zeros", One(|scope| constant(scope, 0.0))),
    ("zeros_like", One(|scope| like(scope, 0.0))),
];

/// Tensors of at most this many elements are initializers; a node fills larger ones.
const STORED_ELEMENTS: i64 = 64;

/// Ranges of at most this many elements are initializers.
const STORED_RANGE: i64 = 1 << 16;

fn repeated(scope: &mut Scope<'_>, value: &OnnxValue) -> Result<OnnxValue> {
    let dims = scope.out_dims()?;
    match &value.content {
        Some(data) if dims.iter().product::<i64>() <= STORED_ELEMENTS => {
            let count = dims.iter().product::<i64>() as usize;
            let shape: Vec<u64> = dims.iter().map(|n| *n as u64).collect();
            let all = edgecut_graph::TensorData::new(data.dtype(), shape, data.bytes().repeat(count));
            Ok(scope.builder.constant(all.map_err(|error| error.to_string())?))
        }
        _ => scope.builder.expand(value, &dims),
    }
}

fn constant(scope: &mut Scope<'_>, value: f64) -> Result<OnnxValue> {
    let dtype = scope.out()?.dtype;
    let value = scope.builder.scalar(value, dtype)?;
    repeated(scope, &value)
}

/// As `constant`, of unknown sizes by the shape of the operand.
fn like(scope: &mut Scope<'_>, value: f64) -> Result<OnnxValue> {
    if scope.out_dims().is_ok() {
        return constant(scope, value);
    }
    let (x, dtype) = (scope.x(0)?, scope.out()?.dtype);
    let value = scope.builder.scalar(value, dtype)?;
    let shape = scope.builder.node("Shape", &[&x]).one(DType::I64)?;
    scope.builder.node("Expand", &[&value, &shape]).one(dtype)
}

fn full(scope: &mut Scope<'_>, index: usize) -> Result<OnnxValue> {
    let (value, dtype) = (scope.x(index)?, scope.out()?.dtype);
    let value = scope.builder.cast(&value, dtype)?;
    repeated(scope, &value)
}

fn shape_of(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let dtype = scope.out()?.dtype;
    if let Ok(dims) = scope.dims(0) {
        return scope.builder.integers(&dims, dtype, &[dims.len() as u64]);
    }
    let x = scope.x(0)?;
    let shape = scope.builder.node("Shape", &[&x]).one(DType::I64)?;
    scope.builder.cast(&shape, dtype)
}

fn size(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, dtype) = (scope.x(0)?, scope.out()?.dtype);
    let size = scope.builder.node("Size", &[&x]).one(DType::I64)?;
    scope.builder.cast(&size, dtype)
}

/// `start + step · i`: computed when it is written where start and step are known, as the shape is, and it is short.
fn arange(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let dtype = scope.out()?.dtype;
    let numbers =
        |index| scope.content_numbers(index, "an end of the range").ok().and_then(|list| list.first().copied());
    let count = scope.out_dims().ok().and_then(|dims| dims.first().copied());
    if let (Some(start), Some(step), Some(count)) = (numbers(0), numbers(2), count.filter(|n| *n <= STORED_RANGE)) {
        let values: Vec<f64> = (0..count).map(|i| start + step * i as f64).collect();
        return scope.builder.list_of(&values, dtype, &[count as u64]);
    }
    let (start, end, step) = (scope.x(0)?, scope.x(1)?, scope.x(2)?);
    let range = scope.builder.node("Range", &[&start, &end, &step]).one(start.dtype)?;
    scope.builder.cast(&range, dtype)
}
