//! Selecting the largest elements, and writing elements at places that are given.

use edgecut_graph::DType;

use crate::export::write::Write::{self, Many, One};
use crate::{
    error::Result,
    export::{
        builder::OnnxValue,
        scope::{Scope, table_entries},
    },
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("one_hot", One(one_hot)),
    ("scatter_elements", One(scatter_elements)),
    ("scatter_nd", One(scatter_nd)),
    ("topk", Many(topk)),
];

/// Values, places, or both; of equal elements the first comes first, as in TVM.
fn topk(scope: &mut Scope<'_>) -> Result<Vec<OnnxValue>> {
    let (x, dims) = (scope.x(0)?, scope.dims(0)?);
    let axis = scope.axis("axis", -1, dims.len())?;
    let count = match scope.int("k", 1)? {
        k if k < 1 => dims[axis],
        k => k.min(dims[axis]),
    };
    let returned = scope.text("ret_type", "both")?;
    let largest = !scope.flag("is_ascend", false)?;
    let places = scope.results().last().ok_or("it has no result")?.dtype;
    let count = scope.builder.ints(&[count])?;
    let node = scope.builder.node("TopK", &[&x, &count]).int("axis", axis as i64).int("largest", largest.into());
    let [values, indices] = &node.many(&[x.dtype, DType::I64])?[..] else { return Err("TopK has two results".into()) };
    match returned {
        "values" => Ok(vec![values.clone()]),
        "indices" => Ok(vec![scope.builder.cast(indices, places)?]),
        _ => Ok(vec![values.clone(), scope.builder.cast(indices, places)?]),
    }
}

/// By comparison: places beyond the depth, and negative ones, select nothing, where ONNX's operator counts from the end.
fn one_hot(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (indices, on, off) = (scope.x(0)?, scope.x(1)?, scope.x(2)?);
    let (mut dims, depth, dtype) = (scope.dims(0)?, scope.int("depth", 1)?, scope.out()?.dtype);
    let at = scope.axis("axis", -1, dims.len() + 1)?;
    dims.insert(at, 1);
    let indices = scope.builder.cast(&indices, DType::I64)?;
    let indices = scope.builder.reshape(&indices, &dims)?;
    let places: Vec<i64> = (0..table_entries(&[depth])?).collect();
    let along: Vec<u64> = (0..dims.len()).map(|axis| if axis == at { depth as u64 } else { 1 }).collect();
    let places = scope.builder.integers(&places, DType::I64, &along)?;
    let is_there = scope.builder.compare("Equal", &indices, &places)?;
    let (on, off) = (scope.builder.cast(&on, dtype)?, scope.builder.cast(&off, dtype)?);
    scope.builder.choose(&is_there, &on, &off)
}

/// ONNX's name of a reduction.
fn reduction(name: &str) -> Result<&'static str> {
    match name {
        "update" => Ok("none"),
        "add" => Ok("add"),
        "mul" => Ok("mul"),
        "min" => Ok("min"),
        "max" => Ok("max"),
        other => Err(format!("reduction `{other}` has no equivalent")),
    }
}

fn scatter_elements(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, indices, updates) = (scope.x(0)?, scope.x(1)?, scope.x(2)?);
    let (axis, reduction) = (scope.axis("axis", 0, scope.rank(0)?)?, reduction(scope.text("reduction", "update")?)?);
    let indices = scope.builder.index(&indices)?;
    let node = scope.builder.node("ScatterElements", &[&x, &indices, &updates]);
    node.int("axis", axis as i64).text("reduction", reduction).one(x.dtype)
}

/// Relay has the coordinates along the first axis of the places, ONNX along the last.
fn scatter_nd(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, indices, updates, rank) = (scope.x(0)?, scope.x(1)?, scope.x(2)?, scope.rank(1)?);
    let reduction = reduction(scope.text("mode", "update")?)?;
    let axes: Vec<usize> = (1..rank).chain([0]).collect();
    let indices = scope.builder.cast(&indices, DType::I64)?;
    let indices = scope.builder.transpose(&indices, &axes)?;
    scope.builder.node("ScatterND", &[&x, &indices, &updates]).text("reduction", reduction).one(x.dtype)
}
