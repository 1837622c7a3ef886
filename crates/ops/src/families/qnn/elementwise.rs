//! Elementwise functions of quantised tensors, concatenation and softmax, in integers or in floats as in TVM's
//! canonicalisation.

use crate::def::HostFn;
use crate::families::concat as join;
use crate::rules::{FUNCTION_COST, broadcast_type, per_output, same_type};
use crate::split::{SplitAxis, elementwise_on, off};
use crate::{AttrDef, AttrKind, FusionClass, OpDef, TypeError, Typed};

const PAIR_ATTRS: &[AttrDef] =
    &[AttrDef::new("lhs_axis", AttrKind::Int, "-1"), AttrDef::new("rhs_axis", AttrKind::Int, "-1")];

const RESCALED: &[&str] = &["data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"];

pub(crate) static OPS: &[OpDef] = &[
    pair("qnn.add", kernel!(|call, inputs| sum(call, inputs, 1))),
    pair("qnn.subtract", kernel!(|call, inputs| sum(call, inputs, -1))),
    pair("qnn.mul", kernel!(product)),
    real("qnn.abs", kernel!(|call, inputs| by_real(call, inputs, f32::abs))),
    real("qnn.erf", kernel!(|call, inputs| by_real(call, inputs, libm::erff))),
    real("qnn.exp", kernel!(|call, inputs| by_real(call, inputs, f32::exp))),
    real("qnn.hardswish", kernel!(|call, inputs| by_real(call, inputs, |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0))),
    real("qnn.log", kernel!(|call, inputs| by_real(call, inputs, f32::ln))),
    real("qnn.rsqrt", kernel!(|call, inputs| by_real(call, inputs, |x| 1.0 / x.sqrt()))),
    real("qnn.sigmoid", kernel!(|call, inputs| by_real(call, inputs, |x| 1.0 / (1.0 + (-x).exp())))),
    real("qnn.sqrt", kernel!(|call, inputs| by_real(call, inputs, f32::sqrt))),
    real("qnn.tanh", kernel!(|call, inputs| by_real(call, inputs, f32::tanh))),
    OpDef::new("qnn.leaky_relu", RESCALED, same_type)
        .attrs("relay.attrs.LeakyReluAttrs", &[AttrDef::new("alpha", AttrKind::Float, "0.25f")])
        .flops(per_output::<FUNCTION_COST>)
        .split(|call| shared_scales(call, &[0]))
        .host(kernel!(leaky_relu)),
    OpDef::new(
        "qnn.concatenate",
        &["data", "input_scales", "input_zero_points", "output_scale", "output_zero_point"],
        join::concatenated,
    )
    .attrs("relay.attrs.ConcatenateAttrs", &[AttrDef::new("axis", AttrKind::Int, "0")])
    .flops(per_output::<FUNCTION_COST>)
    .host(kernel!(concatenate)),
    OpDef::new("qnn.softmax", &["data", "scale", "zero_point", "output_scale", "output_zero_point"], same_type)
        .attrs("relay.attrs.SoftmaxAttrs", &[AttrDef::new("axis", AttrKind::Int, "-1")])
        .flops(per_output::<{ 2 * FUNCTION_COST }>)
        .split(|call| off(call, &[call.axis("axis", -1, &call.tensor(0)?.shape)?]))
        .host(kernel!(softmax)),
];

/// Every axis of the operands in `data`, if their quantisation parameters are per tensor.
fn shared_scales(call: &Typed<'_>, data: &[usize]) -> Result<Vec<SplitAxis>, TypeError> {
    let several = |index: &usize| call.tensor(*index).is_ok_and(|t| t.shape.elements() != Some(1));
    match (data.len()..call.args.len()).any(|index| several(&index)) {
        true => Ok(Vec::new()),
        false => elementwise_on(call, data),
    }
}

const fn pair(name: &'static str, host: HostFn) -> OpDef {
    const OPERANDS: &[&str] = &[
        "lhs",
        "rhs",
        "lhs_scale",
        "lhs_zero_point",
        "rhs_scale",
        "rhs_zero_point",
        "output_scale",
        "output_zero_point",
    ];
    OpDef::new(name, OPERANDS, broadcast_type)
        .attrs("relay.attrs.BroadcastAttrs", PAIR_ATTRS)
        .flops(per_output::<{ 2 * FUNCTION_COST }>)
        .split(|call| shared_scales(call, &[0, 1]))
        .host(host)
}

const fn real(name: &'static str, host: HostFn) -> OpDef {
    OpDef::new(name, &["x", "scale", "zero_point", "output_scale", "output_zero_point"], same_type)
        .class(FusionClass::Elementwise)
        .flops(per_output::<{ 2 * FUNCTION_COST }>)
        .split(|call| shared_scales(call, &[0]))
        .host(host)
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::array::TypedConcat;

    use crate::families::qnn::convert::kernel::params;
    use crate::families::qnn::fixed_point::{FixedPoint, Ties};
    use crate::families::qnn::params::{ComputeType, Params, saturated, wrapped};
    use crate::kernel::indexing::{integers, with_last};
    use crate::kernel::pointwise::pairs;

    /// Requantised values, with TVM's defaults; unchanged if the parameters are equal.
    fn rescaled(values: &[i64], from: &Params, to: &Params) -> Vec<i64> {
        from.requantize(values, to, ComputeType::Integer, Ties::Up)
    }

    fn int32s(values: &[i64], shape: &[usize]) -> TractResult<Tensor> {
        let values: Vec<i32> = values.iter().map(|x| *x as i32).collect();
        Tensor::from_shape(shape, &values)
    }

    /// Requantises both operands to the output's parameters and adds or subtracts them, with the zero point corrected.
    pub(super) fn sum(call: &Typed<'_>, inputs: &[TValue], sign: i32) -> TractResult<TVec<Tensor>> {
        let (lhs, rhs) = (&inputs[0], &inputs[1]);
        let to = params(call, &inputs[6], &inputs[7], &call.dims()?, "lhs_axis")?;
        let from = params(call, &inputs[2], &inputs[3], lhs.shape(), "lhs_axis")?;
        let lhs = int32s(&rescaled(&integers(lhs)?, &from, &to), lhs.shape())?;
        let from = params(call, &inputs[4], &inputs[5], rhs.shape(), "rhs_axis")?;
        let rhs = int32s(&rescaled(&integers(rhs)?, &from, &to), rhs.shape())?;
        let mut joined = Tensor::zero::<i32>(&call.dims()?)?;
        pairs(&mut joined, &lhs, &rhs, |a: i32, b: i32| a.wrapping_add(b.wrapping_mul(sign)))?;
        let correct = |(i, x): (usize, i64)| x - i64::from(sign) * to.zero_point(i);
        let values: Vec<i64> = integers(&joined)?.into_iter().enumerate().map(correct).collect();
        Ok(tvec!(saturated(&values, joined.shape(), call.result()?.dtype)?))
    }

    /// Multiplies the values without zero points; the scale of the product is the product of the scales.
    pub(super) fn product(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let shifted = |data: &Tensor, scale: &Tensor, zero_point: &Tensor, key: &str| -> TractResult<(Tensor, f32)> {
            let params = params(call, scale, zero_point, data.shape(), key)?;
            let values = integers(data)?.into_iter().enumerate();
            let values: Vec<i64> = values.map(|(i, q)| q - params.zero_point(i)).collect();
            Ok((int32s(&values, data.shape())?, params.scale(0)))
        };
        let (lhs, lhs_scale) = shifted(&inputs[0], &inputs[2], &inputs[3], "lhs_axis")?;
        let (rhs, rhs_scale) = shifted(&inputs[1], &inputs[4], &inputs[5], "rhs_axis")?;
        let mut joined = Tensor::zero::<i32>(&call.dims()?)?;
        pairs(&mut joined, &lhs, &rhs, i32::wrapping_mul)?;
        let to = params(call, &inputs[6], &inputs[7], joined.shape(), "lhs_axis")?;
        let values = rescaled(&integers(&joined)?, &Params::single(lhs_scale * rhs_scale, 0), &to);
        Ok(tvec!(saturated(&values, joined.shape(), call.result()?.dtype)?))
    }

    /// Dequantises, applies `function` and quantises.
    pub(super) fn by_real(call: &Typed<'_>, inputs: &[TValue], function: fn(f32) -> f32) -> TractResult<TVec<Tensor>> {
        let shape = inputs[0].shape();
        let from = params(call, &inputs[1], &inputs[2], shape, "axis")?;
        let to = params(call, &inputs[3], &inputs[4], shape, "axis")?;
        let real: Vec<f32> = from.dequantize(&integers(&inputs[0])?).into_iter().map(function).collect();
        Ok(tvec!(to.quantized(&real, shape, call.result()?.dtype)?))
    }

    /// Requantises to the output's parameters; where the data is below its zero point, α·q + (1 − α)·zero point with
    /// fixed-point factors.
    pub(super) fn leaky_relu(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let (shape, alpha) = (inputs[0].shape(), call.float("alpha", 0.25)?);
        let from = params(call, &inputs[1], &inputs[2], shape, "axis")?;
        let to = params(call, &inputs[3], &inputs[4], shape, "axis")?;
        let (slope, rest) = (FixedPoint::of(alpha), FixedPoint::of(1.0 - alpha));
        let data = integers(&inputs[0])?;
        let bent = |(i, q): (usize, i64)| match data[i] < from.zero_point(i) {
            true => slope.times(q, Ties::Up) + rest.times(to.zero_point(i), Ties::Up),
            false => q,
        };
        let values: Vec<i64> = rescaled(&data, &from, &to).into_iter().enumerate().map(bent).collect();
        Ok(tvec!(saturated(&values, shape, call.result()?.dtype)?))
    }

    /// Requantises each field to the output's parameters. The operands are the fields, their scales, their zero points.
    pub(super) fn concatenate(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        let count = call.tuple(0)?.len();
        ensure!(inputs.len() == 3 * count + 2, "expected one scale and one zero point per field");
        let axis = call.axis("axis", 0, &call.result()?.shape)?;
        let fields = (0..count).map(|i| {
            let (data, scale, zero_point) = (&inputs[i], &inputs[count + i], &inputs[2 * count + i]);
            let from = params(call, scale, zero_point, data.shape(), "axis")?;
            let to = params(call, &inputs[3 * count], &inputs[3 * count + 1], data.shape(), "axis")?;
            let values = rescaled(&integers(data)?, &from, &to);
            Ok(saturated(&values, data.shape(), call.result()?.dtype)?.into_tvalue())
        });
        let fields = fields.collect::<TractResult<TVec<TValue>>>()?;
        let joined = TypedConcat::new(axis).eval(&EvalContext::out_of_plan(), fields)?;
        Ok(joined.into_iter().map(TValue::into_tensor).collect())
    }

    /// Algorithm 1 of I-ViT (arXiv 2207.01405): powers of two by shifts, in int32. As in TVM (`relay/qnn/op/softmax.cc`) the
    /// exponent is limited to 20; the rest of the logarithm then contributes negatively.
    pub(super) fn softmax(call: &Typed<'_>, inputs: &[TValue]) -> TractResult<TVec<Tensor>> {
        const FRACTION: i64 = 30;
        const BITS: i64 = 8;
        const HALVINGS: i64 = 20;
        let shape = inputs[0].shape();
        let axis = call.axis("axis", -1, &call.tensor(0)?.shape)?;
        let from = params(call, &inputs[1], &inputs[2], shape, "axis")?;
        let to = params(call, &inputs[3], &inputs[4], shape, "axis")?;
        let one = (1.0 / from.scale(0)).round() as i64;
        ensure!(one > 0, "the input scale is too large for an integer softmax");
        let (rows, length) = with_last(&inputs[0], &[axis])?;
        let mut values = integers(&rows)?;
        for row in values.chunks_exact_mut(length.max(1)) {
            let greatest = row.iter().copied().max().unwrap_or(0);
            // (exponent of one half, mantissa) of each element.
            let parts: Vec<(i64, i64)> = row
                .iter()
                .map(|q| {
                    let x = q - greatest;
                    let power = x + (x >> 1) - (x >> 4);
                    let halvings = (power / -one).min(HALVINGS);
                    (halvings, ((power + halvings * one) >> 1) + one)
                })
                .collect();
            let most = parts.iter().map(|p| p.0).max().unwrap_or(0);
            let exponentials: Vec<i64> = parts.iter().map(|(halvings, x)| x << (most - halvings)).collect();
            let total = wrapped(exponentials.iter().fold(0, |sum: i64, x| sum.wrapping_add(*x)));
            let one_part = (1i64 << FRACTION).checked_div(total).unwrap_or(0);
            for (q, exponential) in row.iter_mut().zip(exponentials) {
                *q = wrapped(one_part.wrapping_mul(exponential)) >> (FRACTION - (BITS - 1));
            }
        }
        let values = rescaled(&values, &Params::single(1.0 / f32::from(1u8 << (BITS - 1)), 0), &to);
        let moved = saturated(&values, rows.shape(), call.result()?.dtype)?;
        Ok(tvec!(moved.move_axis(shape.len() - 1, axis)?))
    }
}
