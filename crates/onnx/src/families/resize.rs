//! Interpolation of images and other data along any axes.

use edgecut_graph::{Attr, TensorId};

use crate::{
    compose::{one, sizes, text},
    error::Result,
    lowering::{Call, Lower, Value},
};

pub(super) const OPS: &[(&str, Lower)] = &[("Resize", resize), ("Upsample", resize)];

/// An axis whose length or scale changes.
#[derive(Clone, Copy)]
struct Resized {
    axis: usize,
    size: u64,
    /// By how much the axis grows: coordinates come from it, not from the sizes.
    scale: f32,
    /// The region of a crop, in units of the last index.
    region: (f64, f64),
}

/// What all axes share.
struct Interpolation {
    method: &'static str,
    coordinates: &'static str,
    rounding: &'static str,
    cubic: (f64, i64),
    extrapolation: f64,
    antialias: i64,
}

fn resize(call: &mut Call<'_, '_>) -> Result<Vec<Value>> {
    let x = call.input(0)?;
    let is_old = call.version < 11 || call.node.op_type.as_deref() == Some("Upsample");
    let how = interpolation(call, is_old)?;
    let axes = resized(call, x, is_old, &how)?;
    let dims = call.dims(x)?;
    let rank = dims.len();
    // Data that keeps its shape is copied, whatever the scales are, as ONNX Runtime does.
    let is_crop = how.coordinates == "tf_crop_and_resize";
    if !is_crop && axes.iter().all(|r| r.size == dims[r.axis]) {
        return one(x);
    }
    let is_changed = |r: &Resized| is_crop || r.size != dims[r.axis] || r.scale != 1.0;
    let axes: Vec<Resized> = axes.into_iter().filter(is_changed).collect();
    // Images and volumes at once, also their axes that stay as they are; others axis by axis, which computes the same.
    if (3..=5).contains(&rank) && axes.iter().all(|r| r.axis >= 2) {
        let whole = (2..rank).map(|axis| match axes.iter().position(|r| r.axis == axis) {
            Some(at) => Resized { axis, ..axes[at] },
            None => Resized { axis, size: dims[axis], scale: 1.0, region: (0.0, 1.0) },
        });
        let whole: Vec<Resized> = whole.collect();
        return one(interpolated(call, x, &whole, ["NCW", "NCHW", "NCDHW"][rank - 3], &how)?);
    }
    let (mut made, mut shape) = (x, dims);
    for resized in axes {
        let axis = resized.axis;
        let (outer, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
        let flat = call.reshape(made, &[outer, shape[axis], inner])?;
        shape[axis] = resized.size;
        made = interpolated(call, flat, &[resized], "NWC", &how)?;
        made = call.reshape(made, &shape)?;
    }
    one(made)
}

/// Until operator set 10, positions are those of mode `asymmetric`, and the nearest element depends on the direction.
fn interpolation(call: &Call<'_, '_>, is_old: bool) -> Result<Interpolation> {
    let method = match call.text("mode", "nearest") {
        "nearest" => "nearest_neighbor",
        "linear" | "bilinear" | "trilinear" => "linear",
        "cubic" => "cubic",
        other => return Err(format!("mode `{other}` is not supported")),
    };
    let coordinates =
        match if is_old { "asymmetric" } else { call.text("coordinate_transformation_mode", "half_pixel") } {
            "half_pixel" => "half_pixel",
            "half_pixel_symmetric" => "half_pixel_symmetric",
            "pytorch_half_pixel" => "pytorch_half_pixel",
            "align_corners" => "align_corners",
            "asymmetric" => "asymmetric",
            "tf_half_pixel_for_nn" => "tf_half_pixel_for_nn",
            "tf_crop_and_resize" => "tf_crop_and_resize",
            other => return Err(format!("coordinate_transformation_mode `{other}` is not supported")),
        };
    let rounding = match if is_old { "simple" } else { call.text("nearest_mode", "round_prefer_floor") } {
        "simple" => "simple",
        "round_prefer_floor" => "round_prefer_floor",
        "round_prefer_ceil" => "round_prefer_ceil",
        "floor" => "floor",
        "ceil" => "ceil",
        other => return Err(format!("nearest_mode `{other}` is not supported")),
    };
    let cubic = (call.float("cubic_coeff_a", -0.75), call.int("exclude_outside", 0));
    let (extrapolation, antialias) = (call.float("extrapolation_value", 0.0), call.int("antialias", 0));
    Ok(Interpolation { method, coordinates, rounding, cubic, extrapolation, antialias })
}

/// The axes that the node names, with their sizes and scales: either is given, and determines the other.
fn resized(call: &Call<'_, '_>, x: TensorId, is_old: bool, how: &Interpolation) -> Result<Vec<Resized>> {
    let dims = call.dims(x)?;
    let axes: Vec<usize> = match call.ints("axes") {
        Some(axes) => axes.iter().map(|axis| call.axis(*axis, x)).collect::<Result<_>>()?,
        None => (0..dims.len()).collect(),
    };
    let count = axes.len();
    let scales = match call.floats("scales") {
        Some(scales) => Some(scales),
        None if call.has("height_scale") || call.has("width_scale") => {
            Some(vec![1.0, 1.0, call.float("height_scale", 1.0), call.float("width_scale", 1.0)])
        }
        None => call.content_floats(if is_old { 1 } else { 2 }, "the scales")?.filter(|scales| !scales.is_empty()),
    };
    let wanted = if is_old { None } else { call.content_ints(3, "the sizes")?.filter(|sizes| !sizes.is_empty()) };
    let lengths = axes.iter().map(|axis| dims[*axis]);
    let found: Vec<(u64, f32)> = match (wanted, scales) {
        (Some(wanted), _) if wanted.len() == count => {
            let wanted: Option<Vec<u64>> = wanted.iter().map(|size| u64::try_from(*size).ok()).collect();
            by_sizes(call, &lengths.collect::<Vec<_>>(), &wanted.ok_or("a size is negative")?)?
        }
        (None, Some(scales)) if scales.len() == count => {
            lengths.zip(&scales).map(|(n, s)| by_scale(n, *s as f32)).collect()
        }
        (None, None) => return Err("it has neither scales nor sizes".to_string()),
        _ => return Err(format!("there must be {count} sizes or scales, one for each axis")),
    };
    if found.iter().any(|(_, scale)| !(scale.is_finite() && *scale > 0.0)) {
        return Err("scales and sizes must be positive".to_string());
    }
    let region = match how.coordinates == "tf_crop_and_resize" {
        true => call.content_floats(1, "the region")?.filter(|region| region.len() == 2 * count),
        false => None,
    };
    let region = |at: usize| region.as_ref().map_or((0.0, 1.0), |region| (region[at], region[count + at]));
    let resized = axes.iter().zip(found).enumerate();
    Ok(resized.map(|(at, (axis, (size, scale)))| Resized { axis: *axis, size, scale, region: region(at) }).collect())
}

/// The size of an axis of `n` that grows by `scale`, computed in single precision: 5 · 1.4 is 7.
fn by_scale(n: u64, scale: f32) -> (u64, f32) {
    ((n as f32 * scale).floor() as u64, scale)
}

/// Sizes as they are wanted, or at most or at least that large with one scale for all axes.
fn by_sizes(call: &Call<'_, '_>, lengths: &[u64], wanted: &[u64]) -> Result<Vec<(u64, f32)>> {
    let scales: Vec<f32> = wanted.iter().zip(lengths).map(|(size, n)| *size as f32 / *n as f32).collect();
    let scale = match call.text("keep_aspect_ratio_policy", "stretch") {
        "stretch" => return Ok(wanted.iter().copied().zip(scales).collect()),
        "not_larger" => scales.iter().copied().fold(f32::INFINITY, f32::min),
        "not_smaller" => scales.iter().copied().fold(0.0, f32::max),
        other => return Err(format!("keep_aspect_ratio_policy `{other}` is not supported")),
    };
    Ok(lengths.iter().map(|n| ((*n as f32 * scale + 0.5).floor() as u64, scale)).collect())
}

/// Interpolates data in `layout` along its one to three spatial axes.
fn interpolated(
    call: &mut Call<'_, '_>,
    x: TensorId,
    axes: &[Resized],
    layout: &str,
    how: &Interpolation,
) -> Result<TensorId> {
    let name = ["image.resize1d", "image.resize2d", "image.resize3d"][axes.len() - 1];
    let floats = |values: Vec<f64>| Attr::List(values.into_iter().map(Attr::Float).collect());
    let mut attrs = vec![
        ("size", sizes(&axes.iter().map(|r| r.size).collect::<Vec<_>>())),
        ("layout", text(layout)),
        ("method", text(how.method)),
        ("coordinate_transformation_mode", text(how.coordinates)),
        ("rounding_method", text(how.rounding)),
        ("cubic_alpha", Attr::Float(how.cubic.0)),
        ("cubic_exclude", Attr::Int(how.cubic.1)),
        ("extrapolation_value", Attr::Float(how.extrapolation)),
        ("scales", floats(axes.iter().map(|r| f64::from(r.scale)).collect())),
    ];
    if how.antialias != 0 {
        attrs.push(("antialias", Attr::Int(how.antialias)));
    }
    if how.coordinates == "tf_crop_and_resize" {
        let begins = axes.iter().map(|r| r.region.0);
        attrs.push(("roi", floats(begins.chain(axes.iter().map(|r| r.region.1)).collect())));
    }
    call.op(name, &[x], attrs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_computed_in_single_precision() {
        for (n, scale, size) in [(5, 1.4, 7), (4, 1.7, 6), (5, 1.7, 8), (13, 1.5, 19), (3, 1.9, 5), (10, 0.3, 3)] {
            assert_eq!(by_scale(n, scale).0, size, "{n} by {scale}");
        }
    }
}
