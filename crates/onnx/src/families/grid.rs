//! Sampling of images and volumes at the points of a grid.

use edgecut_graph::Attr;

use crate::{
    compose::{one, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("GridSample", sample)];

/// The coordinates of a point are the last axis of the grid, for the graph's operator the second.
fn sample(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let (x, grid) = (call.input(0)?, call.input(1)?);
    let rank = call.rank(x);
    let layout = match rank {
        4 => "NCHW",
        5 => "NCDHW",
        _ => return Err(format!("data of {rank} dimensions; 4 and 5 are supported")),
    };
    let method = match call.text("mode", "linear") {
        "linear" | "bilinear" => "bilinear",
        "nearest" => "nearest",
        "cubic" | "bicubic" => "bicubic",
        other => return Err(format!("mode {} is not supported", crate::error::shown(other))),
    };
    if call.rank(grid) != rank {
        return Err(format!("a grid of {} dimensions for data of {rank}", call.rank(grid)));
    }
    let axes: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let grid = call.transpose(grid, &axes)?;
    let attrs = vec![
        ("method", text(method)),
        ("layout", text(layout)),
        ("padding_mode", text(call.text("padding_mode", "zeros"))),
        ("align_corners", Attr::Bool(call.int("align_corners", 0) != 0)),
    ];
    one(call.op("image.grid_sample", &[x, grid], attrs)?)
}
