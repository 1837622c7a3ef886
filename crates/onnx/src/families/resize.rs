//! Interpolation of images.

use edgecut_graph::Attr;

use crate::{
    compose::{one, sizes, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("Resize", resize), ("Upsample", resize)];

/// Along the spatial axes of data in NC… layout.
fn resize(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let dims = call.dims(x)?;
    let rank = dims.len();
    let is_old = call.version < 11 || call.node.op_type.as_deref() == Some("Upsample");
    let scales = match call.floats("scales") {
        Some(scales) => Some(scales),
        None => call.content_floats(if is_old { 1 } else { 2 }, "the scales")?.filter(|scales| !scales.is_empty()),
    };
    let wanted = if is_old { None } else { call.content_ints(3, "the sizes")?.filter(|sizes| !sizes.is_empty()) };
    let axes: Vec<usize> = match call.ints("axes") {
        Some(axes) => axes.iter().map(|axis| call.axis(*axis, x)).collect::<Result<_>>()?,
        None => (0..rank).collect(),
    };
    let mut shape = dims.clone();
    for (at, axis) in axes.iter().enumerate() {
        shape[*axis] = match (&wanted, &scales) {
            (Some(sizes), _) => sizes.get(at).and_then(|n| u64::try_from(*n).ok()).ok_or("a size is missing")?,
            (None, Some(scales)) => (dims[*axis] as f64 * scales.get(at).ok_or("a scale is missing")?).floor() as u64,
            (None, None) => return Err("it has neither scales nor sizes".to_string()),
        };
    }
    if call.text("keep_aspect_ratio_policy", "stretch") != "stretch" {
        return Err("sizes that keep the aspect ratio are not supported".to_string());
    }
    if call.int("antialias", 0) != 0 {
        return Err("antialiasing is not supported".to_string());
    }
    if !(3..=5).contains(&rank) || shape[..2] != dims[..2] {
        return Err(format!("data of {rank} dimensions resized from {dims:?} to {shape:?}; only spatial axes can be"));
    }
    let name = ["image.resize1d", "image.resize2d", "image.resize3d"][rank - 3];
    let method = match call.text("mode", "nearest") {
        "nearest" => "nearest_neighbor",
        "linear" | "bilinear" | "trilinear" => "linear",
        "cubic" => "cubic",
        other => return Err(format!("mode `{other}` is not supported")),
    };
    let coordinates = if is_old { "asymmetric" } else { call.text("coordinate_transformation_mode", "half_pixel") };
    let rounding = match if is_old { "floor" } else { call.text("nearest_mode", "round_prefer_floor") } {
        "round_prefer_floor" => "round_prefer_floor",
        "round_prefer_ceil" => "round_prefer_ceil",
        "floor" => "floor",
        "ceil" => "ceil",
        other => return Err(format!("nearest_mode `{other}` is not supported")),
    };
    let mut attrs = vec![
        ("size", sizes(&shape[2..])),
        ("layout", text(["NCW", "NCHW", "NCDHW"][rank - 3])),
        ("method", text(method)),
        ("coordinate_transformation_mode", text(coordinates)),
        ("rounding_method", text(rounding)),
        ("cubic_alpha", Attr::Float(call.float("cubic_coeff_a", -0.75))),
        ("cubic_exclude", Attr::Int(call.int("exclude_outside", 0))),
        ("extrapolation_value", Attr::Float(call.float("extrapolation_value", 0.0))),
    ];
    if let (false, Some(roi)) = (is_old, call.content_floats(1, "the region")?.filter(|roi| roi.len() == 2 * rank)) {
        let spatial = roi[2..rank].iter().chain(&roi[rank + 2..]);
        attrs.push(("roi", Attr::List(spatial.map(|x| Attr::Float(*x)).collect())));
    }
    one(call.op(name, &[x], attrs)?)
}
