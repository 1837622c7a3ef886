//! Reductions, positions of extreme values, cumulative sums and products, sums over broadcast axes.

use edgecut_graph::DType;

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("all", One(|scope| logical(scope, "ReduceMin"))),
    ("any", One(|scope| logical(scope, "ReduceMax"))),
    ("argmax", One(|scope| position(scope, "ArgMax"))),
    ("argmin", One(|scope| position(scope, "ArgMin"))),
    ("collapse_sum_like", One(collapse_sum)),
    ("collapse_sum_to", One(collapse_sum)),
    ("cumprod", One(cumulative_product)),
    ("cumsum", One(cumulative_sum)),
    ("max", One(|scope| reduction(scope, "ReduceMax"))),
    ("mean", One(mean)),
    ("min", One(|scope| reduction(scope, "ReduceMin"))),
    ("prod", One(|scope| reduction(scope, "ReduceProd"))),
    ("sum", One(|scope| reduction(scope, "ReduceSum"))),
    ("variance", One(variance)),
];

/// The axes that are reduced, in ascending order.
fn axes(scope: &Scope<'_>) -> Result<Vec<usize>> {
    let rank = scope.rank(0)?;
    let listed = scope.axes("axis", rank)?.unwrap_or_default();
    let exclude = scope.flag("exclude", false)?;
    let is_reduced = |axis: &usize| listed.is_empty() || listed.contains(axis) != exclude;
    Ok((0..rank).filter(is_reduced).collect())
}

fn reduced(scope: &mut Scope<'_>, op: &'static str, x: &OnnxValue, axes: &[usize]) -> Result<OnnxValue> {
    let keep = scope.flag("keepdims", false)?;
    match axes.is_empty() {
        true => Ok(x.clone()),
        false => scope.builder.reduce(op, x, axes, keep),
    }
}

fn reduction(scope: &mut Scope<'_>, op: &'static str) -> Result<OnnxValue> {
    let (x, axes) = (scope.x(0)?, axes(scope)?);
    let dims = scope.dims(0)?;
    match axes.iter().any(|axis| dims[*axis] == 0) {
        true => of_nothing(scope, op),
        false => reduced(scope, op, &x, &axes),
    }
}

/// The reduction of no elements, which runtimes do not all compute.
fn of_nothing(scope: &mut Scope<'_>, op: &'static str) -> Result<OnnxValue> {
    let (dtype, dims) = (scope.out()?.dtype, scope.out_dims()?);
    let (least, most) = super::activation::range(dtype);
    let extreme = if scope.call.is_onnx() { f64::INFINITY } else { f64::from(f32::MAX) };
    let value = match op {
        "ReduceSum" => scope.builder.scalar(0.0, dtype)?,
        "ReduceProd" => scope.builder.scalar(1.0, dtype)?,
        "ReduceMax" if dtype.is_float() => scope.builder.scalar(-extreme, dtype)?,
        "ReduceMin" if dtype.is_float() => scope.builder.scalar(extreme, dtype)?,
        "ReduceMax" => scope.builder.integers(&[least as i64], dtype, &[])?,
        "ReduceMin" => scope.builder.integers(&[most as i64], dtype, &[])?,
        _ => return Err(format!("{op} of nothing")),
    };
    scope.builder.expand(&value, &dims)
}

/// Of integers, the sum divided with truncation.
fn mean(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, axes) = (scope.x(0)?, axes(scope)?);
    if x.dtype.is_float() {
        return reduced(scope, "ReduceMean", &x, &axes);
    }
    let dims = scope.dims(0)?;
    let sum = reduced(scope, "ReduceSum", &x, &axes)?;
    let count: i64 = axes.iter().map(|axis| dims[*axis]).product();
    scope.builder.with_number("Div", &sum, count as f64)
}

fn logical(scope: &mut Scope<'_>, op: &'static str) -> Result<OnnxValue> {
    let (x, axes) = (scope.x(0)?, axes(scope)?);
    let x = scope.builder.cast(&x, DType::I32)?;
    let y = reduced(scope, op, &x, &axes)?;
    scope.builder.cast(&y, DType::Bool)
}

fn variance(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, mean, axes, rank) = (scope.x(0)?, scope.x(1)?, axes(scope)?, scope.rank(0)?);
    let mean = match scope.rank(1)? == rank {
        true => mean,
        false => {
            let inserted: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
            scope.builder.unsqueeze(&mean, &inserted)?
        }
    };
    let centred = scope.builder.binary("Sub", &x, &mean)?;
    let squares = scope.builder.binary("Mul", &centred, &centred)?;
    if !scope.flag("unbiased", false)? {
        return reduced(scope, "ReduceMean", &squares, &axes);
    }
    let dims = scope.dims(0)?;
    let sum = reduced(scope, "ReduceSum", &squares, &axes)?;
    let count: i64 = axes.iter().map(|axis| dims[*axis]).product();
    scope.builder.with_number("Div", &sum, (count - 1) as f64)
}

/// The position of an extreme value; over several axes, in the flattened ones.
fn position(scope: &mut Scope<'_>, op: &'static str) -> Result<OnnxValue> {
    let (mut x, axes, rank) = (scope.x(0)?, axes(scope)?, scope.rank(0)?);
    let (keep, last) = (scope.flag("keepdims", false)?, scope.flag("select_last_index", false)?);
    let dtype = scope.out()?.dtype;
    let mut at = axes.first().copied().unwrap_or(0);
    let merges = axes.len() != 1;
    if merges {
        // The reduced axes last, and merged.
        let dims = scope.dims(0)?;
        let kept: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
        let order: Vec<usize> = kept.iter().chain(&axes).copied().collect();
        x = scope.builder.transpose(&x, &order)?;
        let mut shape: Vec<i64> = kept.iter().map(|axis| dims[*axis]).collect();
        at = shape.len();
        shape.push(axes.iter().map(|axis| dims[*axis]).product());
        x = scope.builder.reshape(&x, &shape)?;
    }
    let mut node = scope.builder.node(op, &[&x]).int("axis", at as i64).int("keepdims", (keep && !merges).into());
    if last {
        node = node.int("select_last_index", 1);
    }
    let mut found = node.one(DType::I64)?;
    if merges && keep {
        let dims = scope.out_dims()?;
        found = scope.builder.reshape(&found, &dims)?;
    }
    scope.builder.cast(&found, dtype)
}

/// The operand and the axis of a cumulative operator, which flattens without an axis.
fn cumulated(scope: &mut Scope<'_>) -> Result<(OnnxValue, usize, i64)> {
    let (x, dtype, rank) = (scope.x(0)?, scope.out()?.dtype, scope.rank(0)?);
    let x = scope.builder.cast(&x, dtype)?;
    let dims = scope.dims(0)?;
    match scope.attr("axis") {
        Some(_) => {
            let at = scope.axis("axis", 0, rank)?;
            Ok((x, at, dims[at]))
        }
        None => {
            let count = dims.iter().product();
            Ok((scope.builder.reshape(&x, &[count])?, 0, count))
        }
    }
}

fn cumulative_sum(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, at, _) = cumulated(scope)?;
    let axis = scope.builder.integers(&[at as i64], DType::I64, &[])?;
    let exclusive = scope.flag("exclusive", false)?;
    let node = scope.builder.node("CumSum", &[&x, &axis]);
    // Kernels exist for wide types; sums wrap when they are converted back.
    match exclusive {
        true => node.int("exclusive", 1).one(x.dtype),
        false => node.one(x.dtype),
    }
}

/// Products with the elements 1, 2, 4, … positions before, as parallel scans compute them.
fn cumulative_product(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (mut x, at, count) = cumulated(scope)?;
    let rank = if scope.attr("axis").is_some() { scope.rank(0)? } else { 1 };
    let one = scope.builder.scalar(1.0, x.dtype)?;
    let shifted = |scope: &mut Scope<'_>, x: &OnnxValue, by: i64| {
        let kept = scope.builder.range(x, at, 0, count - by)?;
        let mut widths = vec![(0, 0); rank];
        widths[at].0 = by;
        scope.builder.pad(&kept, &widths, &one)
    };
    if scope.flag("exclusive", false)? && count > 0 {
        x = shifted(scope, &x, 1)?;
    }
    let mut by = 1;
    while by < count {
        let before = shifted(scope, &x, by)?;
        x = scope.builder.binary("Mul", &x, &before)?;
        by *= 2;
    }
    Ok(x)
}

/// Sums over the axes along which the result's shape was broadcast.
fn collapse_sum(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, dims, out) = (scope.x(0)?, scope.dims(0)?, scope.out_dims()?);
    let skipped = dims.len().checked_sub(out.len()).ok_or("a result of higher rank")?;
    let is_summed = |axis: &usize| *axis < skipped || (out[*axis - skipped] == 1 && dims[*axis] != 1);
    let axes: Vec<usize> = (0..dims.len()).filter(is_summed).collect();
    if axes.is_empty() {
        return Ok(x);
    }
    let sum = scope.builder.reduce("ReduceSum", &x, &axes, true)?;
    match skipped {
        0 => Ok(sum),
        _ => scope.builder.reshape(&sum, &out),
    }
}
