//! Resizing of images and volumes: `image.resize*` to sizes, `nn.upsampling*` by factors.

use super::{
    AXES,
    interpolate::{Coordinates, Method, Nearest},
};
use crate::{
    AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed,
    layout::{Layout, map_dim},
    split::{SplitAxis, off},
};
use edgecut_graph::{Attr, DType, Dim, TensorType, Type};

/// Longest resized axis: every element of it has a list of taps.
const MAX_LENGTH: u64 = 1 << 22;

pub(crate) static OPS: &[OpDef] = &[
    resize::<1>("image.resize1d", "relay.attrs.Resize1DAttrs", &resize_attrs("\"NCW\"")),
    resize::<2>("image.resize2d", "relay.attrs.Resize2DAttrs", RESIZE2D),
    resize::<3>("image.resize3d", "relay.attrs.Resize3DAttrs", &resize_attrs("\"NCDHW\"")),
    upsampling::<2>("nn.upsampling", "relay.attrs.UpSamplingAttrs", UPSAMPLING),
    upsampling::<3>("nn.upsampling3d", "relay.attrs.UpSampling3DAttrs", UPSAMPLING3D),
];

pub(crate) const RESIZE2D: &[AttrDef] = &resize_attrs("\"NCHW\"");

pub(crate) const UPSAMPLING: &[AttrDef] = &[
    AttrDef::required("scale_h", AttrKind::Float),
    AttrDef::required("scale_w", AttrKind::Float),
    AttrDef::new("layout", AttrKind::Str, "\"NCHW\""),
    AttrDef::new("method", AttrKind::Str, "\"nearest_neighbor\""),
    AttrDef::new("align_corners", AttrKind::Bool, "False"),
];

pub(crate) const UPSAMPLING3D: &[AttrDef] = &[
    AttrDef::required("scale_d", AttrKind::Float),
    AttrDef::required("scale_h", AttrKind::Float),
    AttrDef::required("scale_w", AttrKind::Float),
    AttrDef::new("layout", AttrKind::Str, "\"NCDHW\""),
    AttrDef::new("method", AttrKind::Str, "\"nearest_neighbor\""),
    AttrDef::new("coordinate_transformation_mode", AttrKind::Str, "\"half_pixel\""),
];

const fn resize<const RANK: usize>(name: &'static str, key: &'static str, attrs: &'static [AttrDef]) -> OpDef {
    OpDef::new(name, &["data"], |call| resized_type(call, &Resize::of_size::<RANK>(call)?))
        .attrs(key, attrs)
        .class(FusionClass::Injective)
        .flops(|call| Resize::of_size::<RANK>(call).map_or(0, |resize| flops(call, &resize)))
        .split(resized_axes::<RANK>)
        .wire(kernel!(|wiring, call, inputs| wire(wiring, call, inputs, &Resize::of_size::<RANK>(call)?)))
}

const fn upsampling<const RANK: usize>(name: &'static str, key: &'static str, attrs: &'static [AttrDef]) -> OpDef {
    OpDef::new(name, &["data"], |call| resized_type(call, &Resize::of_factors::<RANK>(call)?))
        .attrs(key, attrs)
        .class(FusionClass::Injective)
        .flops(|call| Resize::of_factors::<RANK>(call).map_or(0, |resize| flops(call, &resize)))
        .split(upsampled_axes::<RANK>)
        .wire(kernel!(|wiring, call, inputs| wire(wiring, call, inputs, &Resize::of_factors::<RANK>(call)?)))
}

/// The axes that are not spatial, and the spatial ones whose elements are repeated an integer number of times.
fn resized_axes<const RANK: usize>(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (data, resize) = (call.tensor(0)?, Resize::of_size::<RANK>(call)?);
    let mut axes = off(call, &spatial_axes::<RANK>(call, data)?)?;
    let sizes: Vec<u64> = resize.axes.iter().map(|axis| axis.size.get().unwrap_or(0)).collect();
    for (index, resized) in resize.axes.iter().enumerate() {
        let (from, to) = (data.shape[resized.axis].get().unwrap_or(0), sizes[index]);
        // Coordinates of a slice must be those of the whole, which holds if they depend on the factor alone.
        let by_factor = matches!(
            resized.coordinates,
            Coordinates::Asymmetric | Coordinates::HalfPixel | Coordinates::TfHalfPixelForNn
        );
        if !by_factor || from == 0 || to == 0 || to % from != 0 || !matches!(resize.method, Method::Nearest(_)) {
            continue;
        }
        let factor = to / from;
        if to > MAX_LENGTH {
            continue;
        }
        let taps = resize.method.axis(resized.coordinates, from as usize, to as usize, RANK == 2, resized.scale);
        if taps.iter().zip(0u64..).any(|(taps, x)| taps.iter().map(|tap| tap.0 as u64).ne([x / factor])) {
            continue;
        }
        let sizes = sizes.clone();
        axes.push(SplitAxis::along(call, resized.axis).scaled(0, resized.axis, 1, factor).attr("size", move |range| {
            let size = |(i, size): (usize, &u64)| if i == index { range.end - range.start } else { *size };
            Attr::List(sizes.iter().enumerate().map(size).map(|size| Attr::Int(size as i64)).collect())
        }));
    }
    Ok(axes)
}

/// The axes that are not spatial, and the spatial ones with nearest-neighbour interpolation by an integer factor.
fn upsampled_axes<const RANK: usize>(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let (data, out) = (call.tensor(0)?, call.result()?);
    let spatial = spatial_axes::<RANK>(call, data)?;
    let mut axes = off(call, &spatial)?;
    let copied =
        call.text("method", "nearest_neighbor")? == "nearest_neighbor" && !call.flag("align_corners", false)?;
    for at in spatial.into_iter().filter(|_| copied) {
        if let (Some(from), Some(to)) = (data.shape[at].get(), out.shape[at].get())
            && from > 0
            && to % from == 0
        {
            axes.push(SplitAxis::along(call, at).scaled(0, at, 1, to / from));
        }
    }
    Ok(axes)
}

const fn resize_attrs(layout: &'static str) -> [AttrDef; 10] {
    [
        AttrDef::new("size", AttrKind::OptionalInts, "None"),
        AttrDef::new("roi", AttrKind::Floats, "None"),
        AttrDef::new("layout", AttrKind::Str, layout),
        AttrDef::new("method", AttrKind::Str, "\"linear\""),
        AttrDef::new("coordinate_transformation_mode", AttrKind::Str, "\"half_pixel\""),
        AttrDef::new("rounding_method", AttrKind::Str, "\"round\""),
        AttrDef::new("cubic_alpha", AttrKind::Float, "-0.5f"),
        AttrDef::new("cubic_exclude", AttrKind::Int, "0"),
        AttrDef::new("extrapolation_value", AttrKind::Float, "0f"),
        AttrDef::new("out_dtype", AttrKind::DType, "\"\""),
    ]
}

/// The attributes of a resizing.
struct Resize {
    axes: Vec<Resized>,
    method: Method,
    /// ONNX's `antialias`: a low-pass filter along axes that shrink. Has no effect without scales.
    is_antialiased: bool,
    /// The value of a crop out of bounds.
    extrapolation: f64,
    out_dtype: DType,
}

/// One resized axis.
struct Resized {
    axis: usize,
    size: Dim,
    coordinates: Coordinates,
    /// By how much the axis grows, where that decides coordinates: in ONNX, by the attribute `scales`.
    scale: Option<f32>,
}

impl Resize {
    /// `image.resize*`.
    fn of_size<const RANK: usize>(call: &Call<'_>) -> Result<Resize, TypeError> {
        let data = call.tensor(0)?;
        let at = spatial_axes::<RANK>(call, data)?;
        if call.attr("size").is_none() {
            return Err(call.error("size is missing"));
        }
        let sizes = call.steps("size", RANK, 1)?;
        let roi = call.floats("roi")?.unwrap_or_default();
        let mode = call.text("coordinate_transformation_mode", "half_pixel")?;
        let scales = scales(call, RANK)?;
        let axis = |i: usize| {
            let part = roi.get(i).zip(roi.get(i + RANK)).map_or((0.0, 1.0), |(a, b)| (*a as f32, *b as f32));
            let (size, coordinates) = (Dim::Known(sizes[i]), coordinates(call, mode, part)?);
            Ok(Resized { axis: at[i], size, coordinates, scale: scales.as_ref().map(|scales| scales[i]) })
        };
        Ok(Resize {
            axes: (0..RANK).map(axis).collect::<Result<_, TypeError>>()?,
            method: method(call, call.text("method", "linear")?, call.text("rounding_method", "round")?, mode)?,
            is_antialiased: call.int("antialias", 0)? != 0,
            extrapolation: call.float("extrapolation_value", 0.0)?,
            out_dtype: call.dtype("out_dtype")?.unwrap_or(data.dtype),
        })
    }

    /// `nn.upsampling*`.
    fn of_factors<const RANK: usize>(call: &Call<'_>) -> Result<Resize, TypeError> {
        let data = call.tensor(0)?;
        let at = spatial_axes::<RANK>(call, data)?;
        let mode = match RANK {
            2 if call.flag("align_corners", false)? => "align_corners",
            2 => "asymmetric",
            _ => call.text("coordinate_transformation_mode", "half_pixel")?,
        };
        let axis = |(axis, key): (&usize, &str)| {
            let factor = call.float(key, f64::NAN)? as f32;
            if !(factor > 0.0 && factor < 1e6) {
                return Err(call.error(format!("attribute {key} is {factor}, expected a positive factor")));
            }
            // Half to even in single precision, as in TVM's constant folding.
            let size = map_dim(data.shape[*axis], |n| (n as f32 * factor).round_ties_even() as u64);
            Ok(Resized { axis: *axis, size, coordinates: coordinates(call, mode, (0.0, 1.0))?, scale: None })
        };
        let keys = &["scale_d", "scale_h", "scale_w"][3 - RANK..];
        let named = call.text("method", "nearest_neighbor")?;
        let named = named.strip_prefix("bi").or(named.strip_prefix("tri")).unwrap_or(named);
        Ok(Resize {
            axes: at.iter().zip(keys.iter().copied()).map(axis).collect::<Result<_, TypeError>>()?,
            method: method(call, named, "", mode)?,
            is_antialiased: false,
            extrapolation: 0.0,
            out_dtype: data.dtype,
        })
    }
}

/// The attribute `scales`: one positive number for each axis.
fn scales(call: &Call<'_>, rank: usize) -> Result<Option<Vec<f32>>, TypeError> {
    let Some(written) = call.floats("scales")? else { return Ok(None) };
    let scales: Vec<f32> = written.iter().map(|scale| *scale as f32).collect();
    match scales.len() == rank && scales.iter().all(|scale| scale.is_finite() && *scale > 0.0) {
        true => Ok(Some(scales)),
        false => Err(call.error(format!("attribute scales is {written:?}, expected {rank} positive numbers"))),
    }
}

/// The positions of the spatial axes of the data.
fn spatial_axes<const RANK: usize>(call: &Call<'_>, data: &TensorType) -> Result<Vec<usize>, TypeError> {
    let layout = Layout::parse(call.text("layout", AXES[RANK])?).map_err(|e| call.error(e))?;
    let letters = &AXES[RANK][2..];
    let at = letters.chars().map(|l| layout.position(l).filter(|_| !layout.splits(l)));
    let at = at.collect::<Option<Vec<usize>>>().filter(|_| layout.rank() == data.shape.rank());
    at.ok_or_else(|| call.error(format!("the layout of {data} must have the unblocked axes {}", letters)))
}

fn coordinates(call: &Call<'_>, mode: &str, (start, end): (f32, f32)) -> Result<Coordinates, TypeError> {
    Ok(match mode {
        "half_pixel" => Coordinates::HalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "tf_half_pixel_for_nn" => Coordinates::TfHalfPixelForNn,
        "tf_crop_and_resize" => Coordinates::TfCropAndResize { start, end },
        _ => return Err(call.error(format!("{mode:?} is not a coordinate transformation"))),
    })
}

fn method(call: &Call<'_>, method: &str, rounding: &str, mode: &str) -> Result<Method, TypeError> {
    Ok(match method {
        "nearest_neighbor" => Method::Nearest(match rounding {
            "round" => Nearest::Round,
            "" if mode == "align_corners" => Nearest::Round,
            "round_prefer_floor" => Nearest::RoundPreferFloor,
            "round_prefer_ceil" => Nearest::RoundPreferCeil,
            "" | "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            "simple" => Nearest::Simple,
            _ => return Err(call.error(format!("{rounding:?} is not a rounding method"))),
        }),
        "linear" => Method::Linear,
        "cubic" => Method::Cubic {
            alpha: call.float("cubic_alpha", -0.5)? as f32,
            exclude_outside: call.int("cubic_exclude", 0)? != 0,
        },
        _ => return Err(call.error(format!("{method:?} is not a resize method"))),
    })
}

fn resized_type(call: &Call<'_>, resize: &Resize) -> Result<Type, TypeError> {
    let mut out = call.tensor(0)?.clone();
    out.dtype = resize.out_dtype;
    resize.axes.iter().for_each(|resized| out.shape[resized.axis] = resized.size);
    Ok(out.into())
}

/// One multiply-add per tap of each element; copies are free.
fn flops(call: &Typed<'_>, resize: &Resize) -> u64 {
    let taps = match resize.method {
        Method::Nearest(_) => return 0,
        Method::Linear => 2u64,
        Method::Cubic { .. } => 4,
    };
    let of_axis =
        |r: &Resized| r.scale.filter(|_| resize.is_antialiased).map_or(taps, |s| resize.method.antialiased_taps(s));
    let taps = resize.axes.iter().map(of_axis).fold(1u64, u64::saturating_mul);
    let outputs: u64 = call.out.tensors().iter().filter_map(|t| t.shape.elements()).sum();
    outputs.saturating_mul(2).saturating_mul(taps)
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::families::image::interpolate::kernel::nearest;
    use crate::{
        kernel::{self, Wiring, recipe::Recipe, remap::Remap, taps::resampled},
        taps::Taps,
    };

    pub(super) fn wire(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
        resize: &Resize,
    ) -> TractResult<TVec<OutletId>> {
        let out = kernel::fact(call.result()?)?;
        let (shape, given) = (wiring.concrete(inputs[0])?, wiring.fact(inputs[0])?.datum_type);
        let to = out.shape.as_concrete().context("the size of the result is unknown")?.to_vec();
        let longest = resize.axes.iter().map(|r| to[r.axis]).max().unwrap_or(0);
        ensure!(longest as u64 <= MAX_LENGTH, "axes of more than {MAX_LENGTH} elements are not resized");
        for (r, scale) in resize.axes.iter().filter_map(|r| Some((r, r.scale.filter(|_| resize.is_antialiased)?))) {
            // Scales that agree with the sizes need about four taps for each element of either.
            let (n, m) = (shape[r.axis] as u64, to[r.axis] as u64);
            let count = resize.method.antialiased_taps(scale).saturating_mul(m);
            ensure!(
                count <= n.saturating_add(m).saturating_add(2).saturating_mul(16),
                "antialiasing by a scale of {scale} needs too many taps for an axis of {n} elements"
            );
        }
        let repeats = resize.axes.len() == 2;
        let taps = |r: &Resized| {
            let (n, m) = (shape[r.axis], to[r.axis]);
            let taps = match r.scale.filter(|_| resize.is_antialiased) {
                Some(scale) => resize.method.antialiased_axis(r.coordinates, n, m, scale),
                None => resize.method.axis(r.coordinates, n, m, repeats, r.scale),
            };
            (r.axis, taps)
        };
        // The innermost axis first, for cache locality.
        let axes: Vec<(usize, Taps)> = resize.axes.iter().rev().map(taps).collect();
        let mut seen: Vec<Vec<Option<usize>>> = to.iter().map(|n| (0..*n).map(Some).collect()).collect();
        for r in &resize.axes {
            seen[r.axis] = r.coordinates.inside(shape[r.axis], to[r.axis], r.scale);
        }
        let cropped = seen.iter().flatten().any(Option::is_none).then(|| Remap::new(seen));
        let dtype = match (resize.method, given) {
            (Method::Nearest(_), given) => given,
            (_, DatumType::F64) => DatumType::F64,
            _ => DatumType::F32,
        };
        let fill = tensor0(resize.extrapolation).cast_to_dt(dtype)?.into_owned();
        let data = wiring.cast(inputs[0], dtype)?;
        let table = nearest(&shape, &axes);
        let near = matches!(resize.method, Method::Nearest(_));
        let recipe = match (near, &cropped) {
            (_, Some(_)) => None,
            (true, None) => Some(Recipe::Remap { tables: table.tables().to_vec(), fill: Some(fill.clone()) }),
            (false, None) => Some(Recipe::Resample(axes.clone())),
        };
        let made = wiring.with_recipe("Resize", recipe, tvec![dtype.fact(&to)], &[data], move |inputs| {
            let made = match dtype {
                _ if near => table.apply(&inputs[0], &fill)?,
                DatumType::F64 => resampled::<f64>(&inputs[0], &axes)?,
                _ => resampled::<f32>(&inputs[0], &axes)?,
            };
            Ok(tvec![cropped.as_ref().map_or(Ok(made.clone()), |seen| seen.apply(&made, &fill))?])
        })?[0];
        Ok(tvec![wiring.cast(made, out.datum_type)?])
    }
}
