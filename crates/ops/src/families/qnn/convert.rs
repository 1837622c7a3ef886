//! `qnn.quantize`, `qnn.dequantize`, `qnn.requantize` and their simulated (float) variants; with ONNX's semantics, the first two
//! are in `affine`.

use crate::rules::{FUNCTION_COST, per_output};
use crate::split::{SplitAxis, along_vectors};
use crate::{AttrDef, AttrKind, Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{DType, TensorType, Type};

const TO_ATTRS: &[AttrDef] =
    &[AttrDef::required("out_dtype", AttrKind::DType), AttrDef::new("axis", AttrKind::Int, "-1")];

pub(crate) static OPS: &[OpDef] = &[
    OpDef::new("qnn.quantize", &["data", "output_scale", "output_zero_point"], converted_type)
        .attrs("relay.attrs.QuantizeAttrs", TO_ATTRS)
        .flops(per_output::<FUNCTION_COST>)
        .split(axes)
        .onnx_class(FusionClass::Elementwise)
        .host(kernel!(|call, inputs| if call.is_onnx() {
            affine::quantize(call, inputs)
        } else {
            quantize(call, inputs)
        })),
    OpDef::new("qnn.dequantize", &["data", "input_scale", "input_zero_point"], converted_type)
        .attrs("relay.attrs.DequantizeAttrs", TO_ATTRS)
        .flops(per_output::<2>)
        .split(axes)
        .onnx_class(FusionClass::InFusable)
        .host(kernel!(|call, inputs| if call.is_onnx() {
            affine::dequantize(call, inputs)
        } else {
            dequantize(call, inputs)
        })),
    OpDef::new(
        "qnn.requantize",
        &["data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"],
        converted_type,
    )
    .attrs(
        "relay.attrs.RequantizeAttrs",
        &[
            AttrDef::new("axis", AttrKind::Int, "-1"),
            AttrDef::new("rounding", AttrKind::Str, "\"None\""),
            AttrDef::new("compute_dtype", AttrKind::Str, "\"None\""),
            AttrDef::new("out_dtype", AttrKind::DType, "\"\""),
        ],
    )
    .flops(per_output::<FUNCTION_COST>)
    .split(axes)
    .host(kernel!(requantize)),
    OpDef::new(
        "qnn.simulated_quantize",
        &["data", "out_dtype", "output_scale", "output_zero_point"],
        crate::rules::same_type,
    )
    .attrs("relay.attrs.SimulatedQuantizeAttrs", &[AttrDef::new("axis", AttrKind::Int, "-1")])
    .flops(per_output::<FUNCTION_COST>)
    .host(kernel!(simulate_quantize)),
    OpDef::new(
        "qnn.simulated_dequantize",
        &["data", "in_dtype", "input_scale", "input_zero_point"],
        crate::rules::same_type,
    )
    .attrs("relay.attrs.DequantizeAttrs", TO_ATTRS)
    .flops(per_output::<2>)
    .host(kernel!(simulate_dequantize)),
];

/// All axes; vectors of scales and zero points are sliced with their axis.
fn axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.tensor(0)?.shape;
    match shape.rank() {
        0 => Ok(Vec::new()),
        _ => along_vectors(call, call.axis("axis", -1, shape)?, &[]),
    }
}

/// The data's shape with the dtype of the attribute `out_dtype`; the default is int8, for dequantize float32.
fn converted_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let data = call.tensor(0)?;
    let default = if call.def.name == "qnn.dequantize" { DType::F32 } else { DType::I8 };
    Ok(TensorType::new(call.dtype("out_dtype")?.unwrap_or(default), data.shape.clone()).into())
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;

    pub(super) use crate::families::qnn::affine::kernel as affine;
    use crate::families::qnn::fixed_point::Ties;
    use crate::families::qnn::params::{ComputeType, Params, bounds, saturated, singles};
    use crate::kernel::datum_type;
    use crate::kernel::indexing::integers;

    /// Quantisation parameters from two operands; per-channel ones are along the attribute `key`.
    pub(crate) fn params(
        call: &Typed<'_>,
        scale: &Tensor,
        zero_point: &Tensor,
        shape: &[usize],
        key: &str,
    ) -> TractResult<Params> {
        let axis = match scale.len() == 1 && zero_point.len() == 1 {
            true => None,
            false => {
                let (axis, rank) = (call.int(key, -1)?, shape.len() as i64);
                let at = if axis < 0 { axis + rank } else { axis };
                ensure!((0..rank).contains(&at), "{key}={axis} is out of range for rank {rank}");
                Some(at as usize)
            }
        };
        Params::new(scale, zero_point, shape, axis)
    }

    pub(super) fn quantize(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (shape, dtype) = (inputs[0].shape(), call.result()?.dtype);
        let mut params = params(call, &inputs[1], &inputs[2], shape, "axis")?;
        let mut real = singles(&inputs[0])?;
        // TVM rewrites division by a constant to multiplication (`arith/rewrite_simplify.cc`), which affects ties.
        if let Some(scale) = params.take_scale() {
            let reciprocal = (1.0 / f64::from(scale)) as f32;
            real.iter_mut().for_each(|x| *x *= reciprocal);
        }
        Ok(tvec!(params.quantized(&real, shape, dtype)?))
    }

    impl Params {
        /// `values` quantised and saturated to `dtype`; NaN becomes the upper bound.
        pub fn quantized(&self, values: &[f32], shape: &[usize], dtype: DType) -> TractResult<Tensor> {
            let (_, high) = bounds(dtype)?;
            let whole = |x: f64| if x.is_nan() { high } else { x as i64 };
            saturated(&self.quantize(values).into_iter().map(whole).collect::<Vec<i64>>(), shape, dtype)
        }
    }

    pub(super) fn dequantize(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let shape = inputs[0].shape();
        let params = params(call, &inputs[1], &inputs[2], shape, "axis")?;
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        let real = params.dequantize(&integers(&inputs[0])?);
        Ok(tvec!(Tensor::from_shape(shape, &real)?.cast_to_dt(to)?.into_owned()))
    }

    /// The attribute value `None` selects TVM's defaults: ties upward, integer arithmetic.
    pub(super) fn requantize(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let ties = match call.text("rounding", "None")? {
            "None" | "UPWARD" => Ties::Up,
            "TONEAREST" => Ties::AwayFromZero,
            other => bail!("rounding is \"{other}\", expected UPWARD or TONEAREST"),
        };
        let arithmetic = match call.text("compute_dtype", "None")? {
            "None" | "int64" => ComputeType::Integer,
            "float32" => ComputeType::Single,
            "float64" => ComputeType::Double,
            other => bail!("compute_dtype is \"{other}\", expected int64, float32 or float64"),
        };
        let shape = inputs[0].shape();
        let from = params(call, &inputs[1], &inputs[2], shape, "axis")?;
        let to = params(call, &inputs[3], &inputs[4], shape, "axis")?;
        let values = from.requantize(&integers(&inputs[0])?, &to, arithmetic, ties);
        Ok(tvec!(saturated(&values, shape, call.result()?.dtype)?))
    }

    /// The dtype of a simulation code; `None` for no quantisation.
    fn simulated(code: &Tensor) -> TractResult<Option<DType>> {
        match integers(code)?.first() {
            Some(0) => Ok(None),
            Some(1) => Ok(Some(DType::I8)),
            Some(2) => Ok(Some(DType::U8)),
            Some(3) => Ok(Some(DType::I32)),
            other => bail!("{other:?} is not the code of a quantised dtype, expected 0 to 3"),
        }
    }

    pub(super) fn simulate_quantize(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let Some(dtype) = simulated(&inputs[1])? else { return Ok(tvec!(inputs[0].clone().into_tensor())) };
        let shape = inputs[0].shape();
        let params = params(call, &inputs[2], &inputs[3], shape, "axis")?;
        let (low, high) = bounds(dtype)?;
        let within = |x: f64| x.min(high as f64).max(low as f64) as f32;
        let values: Vec<f32> = params.quantize(&singles(&inputs[0])?).into_iter().map(within).collect();
        Ok(tvec!(Tensor::from_shape(shape, &values)?.cast_to_dt(inputs[0].datum_type())?.into_owned()))
    }

    pub(super) fn simulate_dequantize(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        if simulated(&inputs[1])?.is_none() {
            return Ok(tvec!(inputs[0].clone().into_tensor()));
        }
        let shape = inputs[0].shape();
        let params = params(call, &inputs[2], &inputs[3], shape, "axis")?;
        let real = |(i, x): (usize, f32)| (x - params.zero_point(i) as f32) * params.scale(i);
        let values: Vec<f32> = singles(&inputs[0])?.into_iter().enumerate().map(real).collect();
        Ok(tvec!(Tensor::from_shape(shape, &values)?.cast_to_dt(inputs[0].datum_type())?.into_owned()))
    }
}
