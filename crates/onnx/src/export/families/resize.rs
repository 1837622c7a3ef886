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
    let coordinates = scope.text("coordinate_transformation_mode", "half_pixel")?;
    let (method, rounding) = (scope.text("method", "linear")?, scope.text("rounding_method", "round")?);
    interpolated(scope, method, coordinates, rounding)
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
