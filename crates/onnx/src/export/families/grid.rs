//! Sampling of images at the points of a grid.

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[("image.grid_sample", One(sample))];

/// Volumes are sampled from operator set 20 on.
fn sample(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    let (x, grid) = (scope.x(0)?, scope.x(1)?);
    // With the operator set of volumes, linear interpolation has another name.
    let (order, linear): (&[usize], &str) = match scope.text("layout", "NCHW")? {
        "NCHW" => (&[0, 2, 3, 1], "bilinear"),
        "NCDHW" => {
            scope.builder.require("", 20);
            (&[0, 2, 3, 4, 1], "linear")
        }
        layout => return Err(format!("layout `{layout}` has no equivalent")),
    };
    let method = match scope.text("method", "bilinear")? {
        "bilinear" | "trilinear" => linear,
        other => other,
    };
    let padding = scope.text("padding_mode", "zeros")?;
    let corners = i64::from(scope.flag("align_corners", true)?);
    let grid = scope.builder.transpose(&grid, order)?;
    let dtype = scope.out()?.dtype;
    scope
        .builder
        .node("GridSample", &[&x, &grid])
        .text("mode", method)
        .text("padding_mode", padding)
        .int("align_corners", corners)
        .one(dtype)
}
