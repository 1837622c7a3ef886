//! Reductions along axes.

use edgecut_graph::{Attr, DType, TensorId};

use crate::{
    compose::{list, one},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[
    ("ReduceL1", reduce),
    ("ReduceL2", reduce),
    ("ReduceLogSum", reduce),
    ("ReduceLogSumExp", reduce),
    ("ReduceMax", reduce),
    ("ReduceMean", reduce),
    ("ReduceMin", reduce),
    ("ReduceProd", reduce),
    ("ReduceSum", reduce),
    ("ReduceSumSquare", reduce),
    ("ArgMax", arg_reduce),
    ("ArgMin", arg_reduce),
    ("CumSum", cumulative),
    ("GlobalAveragePool", |call| global(call, "mean")),
    ("GlobalMaxPool", |call| global(call, "max")),
];

/// Axes are an attribute until operator set 17, an input from set 13 (`ReduceSum`) or 18 on. None means all of them, or
/// none with `noop_with_empty_axes`.
fn reduce(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axes = match call.ints("axes") {
        Some(axes) => Some(axes),
        None => call.content_ints(1, "the axes")?,
    };
    let axes = axes.filter(|axes| !axes.is_empty());
    let axes: Vec<usize> = match axes {
        Some(axes) => axes.iter().map(|axis| call.axis(*axis, x)).collect::<Result<_>>()?,
        None if call.int("noop_with_empty_axes", 0) != 0 => Vec::new(),
        None => (0..call.rank(x)).collect(),
    };
    let keep = call.int("keepdims", 1) != 0;
    let kind = call.node.op_type.as_deref().unwrap_or_default();
    let over = |call: &mut Call<'_, '_>, name: &'static str, x: TensorId| match axes.is_empty() {
        true => Ok(x),
        false => call.reduce(name, x, &axes, keep),
    };
    one(match kind {
        "ReduceSum" => over(call, "sum", x)?,
        "ReduceMean" => over(call, "mean", x)?,
        "ReduceProd" => over(call, "prod", x)?,
        "ReduceMax" | "ReduceMin" => {
            let name = if kind == "ReduceMax" { "max" } else { "min" };
            // Truth values as numbers.
            let is_bool = call.dtype_of(x) == DType::Bool;
            let x = if is_bool { call.cast(x, DType::U8)? } else { x };
            let made = over(call, name, x)?;
            if is_bool { call.cast(made, DType::Bool)? } else { made }
        }
        "ReduceL1" => {
            let x = call.map("abs", &[x])?;
            over(call, "sum", x)?
        }
        "ReduceL2" | "ReduceSumSquare" => {
            let x = call.map("multiply", &[x, x])?;
            let sum = over(call, "sum", x)?;
            if kind == "ReduceL2" { in_floats(call, sum, |call, sum| call.map("sqrt", &[sum]))? } else { sum }
        }
        "ReduceLogSum" => {
            let sum = over(call, "sum", x)?;
            in_floats(call, sum, |call, sum| call.map("log", &[sum]))?
        }
        _ => in_floats(call, x, |call, x| log_sum_exp(call, x, &axes, keep))?,
    })
}

/// A function of floats: integers are computed as such and truncated.
fn in_floats(
    call: &mut Call<'_, '_>,
    x: TensorId,
    f: impl FnOnce(&mut Call<'_, '_>, TensorId) -> Result<TensorId>,
) -> Result<TensorId> {
    let dtype = call.dtype_of(x);
    if dtype.is_float() {
        return f(call, x);
    }
    let wide = call.cast(x, DType::F64)?;
    let made = f(call, wide)?;
    call.cast(made, dtype)
}

/// log Σ exp(x - max) + max, which does not overflow. An infinite maximum is not subtracted: ∞ - ∞ is no number.
fn log_sum_exp(call: &mut Call<'_, '_>, x: TensorId, axes: &[usize], keep: bool) -> Result<TensorId> {
    if axes.is_empty() {
        return Ok(x);
    }
    let most = call.reduce("max", x, axes, true)?;
    let (is_infinite, zero) = (call.map("isinf", &[most])?, call.like(0.0, most)?);
    let most = call.map("where", &[is_infinite, zero, most])?;
    let shifted = call.map("subtract", &[x, most])?;
    let powers = call.map("exp", &[shifted])?;
    let sum = call.reduce("sum", powers, axes, true)?;
    let log = call.map("log", &[sum])?;
    let made = call.map("add", &[log, most])?;
    if keep { Ok(made) } else { call.squeeze(made, axes) }
}

fn arg_reduce(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axis = call.axis(call.int("axis", 0), x)?;
    let name = if call.node.op_type.as_deref() == Some("ArgMax") { "argmax" } else { "argmin" };
    let attrs = vec![
        ("axis", list(&[axis as i64])),
        ("keepdims", Attr::Bool(call.int("keepdims", 1) != 0)),
        ("select_last_index", Attr::Bool(call.int("select_last_index", 0) != 0)),
    ];
    let made = call.op(name, &[x], attrs)?;
    one(call.cast(made, DType::I64)?)
}

fn cumulative(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axis = call.content_ints(1, "the axis")?.and_then(|axis| axis.first().copied()).ok_or("the axis is missing")?;
    let axis = call.axis(axis, x)? as i64;
    let backwards = call.int("reverse", 0) != 0;
    let attrs = vec![("axis", Attr::Int(axis)), ("exclusive", Attr::Bool(call.int("exclusive", 0) != 0))];
    let turned = |call: &mut Call<'_, '_>, x| call.op("reverse", &[x], vec![("axis", Attr::Int(axis))]);
    let x = if backwards { turned(call, x)? } else { x };
    let made = call.op("cumsum", &[x], attrs)?;
    one(if backwards { turned(call, made)? } else { made })
}

/// Over all spatial axes.
fn global(call: &mut Call<'_, '_>, name: &'static str) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let axes: Vec<usize> = (2..call.rank(x)).collect();
    if axes.len() == 2 {
        let name = if name == "mean" { "nn.global_avg_pool2d" } else { "nn.global_max_pool2d" };
        return one(call.op(name, &[x], Vec::new())?);
    }
    one(call.reduce(name, x, &axes, true)?)
}
