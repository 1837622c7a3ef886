//! `vision.yolo_reorg`: Darknet's rearrangement, as a gathering of elements whose places are known.

use edgecut_graph::DType;

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{
        builder::OnnxValue,
        scope::{Scope, table_entries},
    },
};

pub(super) const OPS: &[(&str, Write)] = &[("vision.yolo_reorg", One(reorg))];

/// As in TVM (`topi/vision/reorg.h`): element (k, j, i) of the result, indexed in the shape of the data, is the data's
/// element number `((k mod q)·s²·H + (j·s + ⌊k/q⌋/s)·s)·W + i·s + ⌊k/q⌋ mod s` with `q = C/s²`.
fn reorg(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, dims, out) = (scope.x(0)?, scope.dims(0)?, scope.out_dims()?);
    let s = scope.int("stride", 1)?;
    let [1, c, h, w] = dims[..] else { return Err("the batch size must be 1".to_string()) };
    let q = c / (s * s);
    if q == 0 {
        return Err(format!("expected at least {} channels, found {c}", s * s));
    }
    let mut places = Vec::with_capacity(table_entries(&[c, h, w])? as usize);
    for (k, j, i) in (0..c).flat_map(|k| (0..h).flat_map(move |j| (0..w).map(move |i| (k, j, i)))) {
        places.push(((k % q) * s * s * h + (j * s + k / q / s) * s) * w + i * s + k / q % s);
    }
    if places.iter().any(|place| *place >= c * h * w) {
        return Err("it reads beyond its operand".to_string());
    }
    let places = scope.builder.integers(&places, DType::I64, &[(c * h * w) as u64])?;
    let flat = scope.builder.flat(&x)?;
    let gathered = scope.builder.gather(&flat, &places, 0)?;
    scope.builder.reshape(&gathered, &out)
}
