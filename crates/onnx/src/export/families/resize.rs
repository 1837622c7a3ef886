//! Interpolation of images.

use crate::export::write::Write::{self, One};
use crate::{
    error::Result,
    export::{builder::OnnxValue, scope::Scope},
};

pub(super) const OPS: &[(&str, Write)] = &[
    ("image.resize1d", One(resize)),
    ("image.resize2d", One(resize)),
    ("image.resize3d", One(resize)),
    ("nn.upsampling", One(|scope| upsampling(scope, "asymmetric"))),
    ("nn.upsampling3d", One(|scope| upsampling(scope, "half_pixel"))),
];

fn resize(scope: &mut Scope<'_>) -> Result<OnnxValue> {
    if let Some(scales) = scope.checked(scope.call.floats("scales"))? {
        return scaled(scope, &scales);
    }
    let coordinates = scope.text("coordinate_transformation_mode", "half_pixel")?;
    let (method, rounding) = (scope.text("method", "linear")?, scope.text("rounding_method", "round")?);
    interpolated(scope, method, coordinates, rounding)
}

/// An axis that is resized.
#[derive(Clone, Copy)]
struct Axis {
    at: usize,
    /// Its place among the spatial axes.
    index: usize,
    from: i64,
    to: i64,
    scale: f32,
}

/// An interpolation that was ONNX's. Until operator set 10, the nearest element was before the position where an axis grew,
/// after it where it shrank: today's operator has one rule for all axes, so those are resized one after the other.
fn scaled(scope: &mut Scope<'_>, scales: &[f64]) -> Result<OnnxValue> {
    let (x, dims, out) = (scope.x(0)?, scope.dims(0)?, scope.out_dims()?);
    let letters = ["", "W", "HW", "DHW"].get(scales.len()).copied().ok_or("it has more than three axes")?;
    let layout = scope.text("layout", super::conv::DATA[scales.len()])?;
    let coordinates = scope.text("coordinate_transformation_mode", "half_pixel")?;
    let mut axes = Vec::new();
    for (index, (letter, scale)) in letters.chars().zip(scales).enumerate() {
        let at = layout.chars().position(|l| l == letter).filter(|at| *at < dims.len());
        let at = at.ok_or_else(|| format!("layout `{layout}` has no axis {letter}"))?;
        let axis = Axis { at, index, from: dims[at], to: out[at], scale: *scale as f32 };
        if axis.from != axis.to || axis.scale != 1.0 || coordinates == "tf_crop_and_resize" {
            axes.push(axis);
        }
    }
    let rounding = scope.text("rounding_method", "round_prefer_floor")?;
    if rounding != "simple" || scope.text("method", "linear")? != "nearest_neighbor" {
        return along(scope, x, &axes, if rounding == "simple" { "floor" } else { rounding });
    }
    let (down, up): (Vec<Axis>, Vec<Axis>) = axes.into_iter().partition(|axis| axis.scale < 1.0);
    // ONNX Runtime copies what keeps its shape, whatever the scale.
    let is_copy = |axes: &[Axis]| !axes.is_empty() && axes.iter().all(|axis| axis.from == axis.to);
    if is_copy(&down) || is_copy(&up) {
        return Err("an axis that keeps its length under a scale has no equivalent".to_string());
    }
    let x = along(scope, x, &down, "ceil")?;
    along(scope, x, &up, "floor")
}

/// A node that resizes `axes`, by sizes where these determine the scales, else by the scales.
fn along(scope: &mut Scope<'_>, x: OnnxValue, axes: &[Axis], rounding: &str) -> Result<OnnxValue> {
    if axes.is_empty() {
        return Ok(x);
    }
    let by_size = axes.iter().all(|axis| axis.to as f32 / axis.from as f32 == axis.scale);
    let by_scale = axes.iter().all(|axis| (axis.from as f32 * axis.scale).floor() as i64 == axis.to);
    let numbers = |scope: &Scope<'_>, values: &[f64]| {
        scope.builder.list_of(values, edgecut_graph::DType::F32, &[values.len() as u64])
    };
    let (mut sizes, mut scales) = (scope.builder.absent(), scope.builder.absent());
    if by_size {
        sizes = scope.builder.ints(&axes.iter().map(|axis| axis.to).collect::<Vec<_>>())?;
    } else if by_scale {
        scales = numbers(scope, &axes.iter().map(|axis| f64::from(axis.scale)).collect::<Vec<_>>())?;
    } else {
        return Err("neither its sizes nor its scales determine the others".to_string());
    }
    let coordinates = scope.text("coordinate_transformation_mode", "half_pixel")?;
    let mut region = scope.builder.absent();
    if coordinates == "tf_crop_and_resize"
        && let Some(all) = scope.checked(scope.call.floats("roi"))?
    {
        let count = all.len() / 2;
        let ends = axes.iter().map(|axis| axis.index).chain(axes.iter().map(|axis| count + axis.index));
        let ends: Option<Vec<f64>> = ends.map(|at| all.get(at).copied()).collect();
        region = numbers(scope, &ends.ok_or("its region has too few corners")?)?;
    }
    if coordinates == "half_pixel_symmetric" {
        scope.builder.require("", 19);
    }
    let method = match scope.text("method", "linear")? {
        "nearest_neighbor" => "nearest",
        other => other,
    };
    let at: Vec<i64> = axes.iter().map(|axis| axis.at as i64).collect();
    let (alpha, exclude) = (scope.float("cubic_alpha", -0.5)?, scope.int("cubic_exclude", 0)?);
    let (outside, antialias) = (scope.float("extrapolation_value", 0.0)?, scope.int("antialias", 0)?);
    if antialias != 0 {
        scope.builder.require("", 18);
    }
    let resized = scope
        .builder
        .node("Resize", &[&x, &region, &scales, &sizes])
        .ints("axes", &at)
        .text("mode", method)
        .text("coordinate_transformation_mode", coordinates)
        .text("nearest_mode", rounding)
        .float("cubic_coeff_a", alpha)
        .float("extrapolation_value", outside)
        .int("exclude_outside", exclude);
    let resized = if antialias == 0 { resized } else { resized.int("antialias", antialias) };
    resized.one(x.dtype)
}

/// By factors, which the result's shape has applied already.
fn upsampling(scope: &mut Scope<'_>, default: &'static str) -> Result<OnnxValue> {
    let coordinates = match scope.flag("align_corners", false)? {
        true => "align_corners",
        false => scope.text("coordinate_transformation_mode", default)?,
    };
    let method = scope.text("method", "nearest_neighbor")?;
    let method = method.strip_prefix("bi").or(method.strip_prefix("tri")).unwrap_or(method);
    interpolated(scope, method, coordinates, "")
}

/// In any layout: axes that keep their length are left as they are by ONNX's operator.
fn interpolated(scope: &mut Scope<'_>, method: &str, coordinates: &str, rounding: &str) -> Result<OnnxValue> {
    let (mut x, mut dims, mut out) = (scope.x(0)?, scope.dims(0)?, scope.out_dims()?);
    let (rank, result) = (dims.len(), out.clone());
    let method = match method {
        "nearest_neighbor" => "nearest",
        "linear" => "linear",
        "cubic" => "cubic",
        other => return Err(format!("method `{other}` has no equivalent")),
    };
    if !["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"].contains(&coordinates) {
        return Err(format!("coordinate_transformation_mode `{coordinates}` has no equivalent"));
    }
    // As TVM chooses where the model does not say (topi/image/resize.py). `round` rounds halves away from zero, which no
    // position below it reaches.
    let rounding = match (rounding, coordinates) {
        ("round_prefer_floor", _) => "round_prefer_floor",
        ("round" | "round_prefer_ceil", _) | ("", "align_corners") => "round_prefer_ceil",
        ("floor" | "", _) => "floor",
        ("ceil", _) => "ceil",
        (other, _) => return Err(format!("rounding_method `{other}` has no equivalent")),
    };
    if method == "cubic" && rank == 3 {
        // ONNX Runtime interpolates by cubic polynomials in images only.
        dims.insert(2, 1);
        out.insert(2, 1);
        x = scope.builder.reshape(&x, &dims)?;
    }
    let axes: Vec<i64> = (0..dims.len()).filter(|axis| dims[*axis] != out[*axis]).map(|axis| axis as i64).collect();
    if axes.is_empty() {
        return Err("an interpolation that keeps the size has no equivalent".to_string());
    }
    let sizes: Vec<i64> = axes.iter().filter_map(|axis| out.get(*axis as usize).copied()).collect();
    let (sizes, absent) = (scope.builder.ints(&sizes)?, scope.builder.absent());
    let (alpha, exclude) = (scope.float("cubic_alpha", -0.5)?, scope.int("cubic_exclude", 0)?);
    let resized = scope
        .builder
        .node("Resize", &[&x, &absent, &absent, &sizes])
        .ints("axes", &axes)
        .text("mode", method)
        .text("coordinate_transformation_mode", coordinates)
        .text("nearest_mode", rounding)
        .float("cubic_coeff_a", alpha)
        .int("exclude_outside", exclude)
        .one(x.dtype)?;
    if dims.len() == rank { Ok(resized) } else { scope.builder.reshape(&resized, &result) }
}
