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
    let layout = scope.text("layout", "NCHW")?;
    if layout != "NCHW" {
        return Err(format!("layout `{layout}` has no equivalent"));
    }
    let method = match scope.text("method", "bilinear")? {
        // Of images the same.
        "trilinear" => "bilinear",
        other => other,
    };
    let padding = scope.text("padding_mode", "zeros")?;
    let corners = i64::from(scope.flag("align_corners", true)?);
    let grid = scope.builder.transpose(&grid, &[0, 2, 3, 1])?;
    let dtype = scope.out()?.dtype;
    scope
        .builder
        .node("GridSample", &[&x, &grid])
        .text("mode", method)
        .text("padding_mode", padding)
        .int("align_corners", corners)
        .one(dtype)
}
