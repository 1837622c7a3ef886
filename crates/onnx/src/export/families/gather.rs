//! Operators that read elements by indices.

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] =
    &[("gather", One(elements)), ("gather_nd", One(by_tuples)), ("take", One(take))];

/// Indices as ONNX accepts them, from `-size` to `size - 1`: Relay clips or wraps the others, ONNX refuses them.
fn bounded(scope: &mut Scope<'_>, indices: &OnnxValue, size: i64) -> Result<OnnxValue> {
    if scope.call.is_onnx() {
        return scope.builder.index(indices);
    }
    let known = indices.content.as_ref().and_then(|data| data.to_i64s());
    if known.is_some_and(|known| known.iter().all(|index| (0..size).contains(index))) {
        return scope.builder.index(indices);
    }
    let indices = scope.builder.index(indices)?;
    let (zero, last) =
        (scope.builder.integers(&[0], indices.dtype, &[])?, scope.builder.integers(&[size - 1], indices.dtype, &[])?);
    match scope.text("mode", "clip")? {
        "clip" => scope.builder.node("Clip", &[&indices, &zero, &last]).one(indices.dtype),
        "wrap" => {
            let size = scope.builder.integers(&[size], indices.dtype, &[])?;
            scope.builder.binary("Mod", &indices, &size)
        }
        "fast" => Ok(indices),
        other => Err(format!("mode `{other}` is not known")),
    }
}

fn take(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, indices, dims) = (scope.x(0)?, scope.x(1)?, scope.dims(0)?);
    if scope.int("batch_dims", 0)? != 0 {
        return Err("batch_dims other than 0 have no equivalent".to_string());
    }
    let is_flat = scope.attr("axis").is_none_or(|axis| axis.int().is_none());
    let (x, axis, size) = match is_flat {
        true => (scope.builder.flat(&x)?, 0, dims.iter().product()),
        false => {
            let axis = scope.axis("axis", 0, dims.len())?;
            (x, axis, dims[axis])
        }
    };
    let indices = bounded(scope, &indices, size)?;
    scope.builder.gather(&x, &indices, axis)
}

fn elements(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, indices, rank) = (scope.x(0)?, scope.x(1)?, scope.rank(0)?);
    let axis = scope.axis("axis", 0, rank)?;
    let indices = scope.builder.index(&indices)?;
    scope.builder.node("GatherElements", &[&x, &indices]).int("axis", axis as i64).one(x.dtype)
}

/// Relay has the axis of the tuples first, ONNX last.
fn by_tuples(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, indices, rank) = (scope.x(0)?, scope.x(1)?, scope.rank(1)?);
    let order: Vec<usize> = (1..rank).chain([0]).collect();
    let indices = scope.builder.cast(&indices, edgecut_graph::DType::I64)?;
    let indices = scope.builder.transpose(&indices, &order)?;
    let batch = scope.int("batch_dims", 0)?;
    scope.builder.node("GatherND", &[&x, &indices]).int("batch_dims", batch).one(x.dtype)
}
