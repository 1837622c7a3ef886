//! Quantised convolutions, dense layers, matrix products and average pooling: zero points are subtracted, then the integer
//! operator of the same name is used, or that on floats where it is as exact.

use crate::families::{conv, dense, pool};
use crate::split::{AccessMap, SplitAxis};
use crate::{Call, FusionClass, OpDef, TypeError, Typed};
use edgecut_graph::{DType, TensorType, Type};

const OPERANDS: &[&str] = &["data", "weight", "input_zero_point", "kernel_zero_point", "input_scale", "kernel_scale"];

pub(crate) static OPS: &[OpDef] = &[
    product("qnn.conv2d", OPERANDS)
        .attrs("relay.attrs.Conv2DAttrs", conv::schema::CONV2D)
        .class(FusionClass::OutFusable)
        .onnx(),
    product("qnn.conv2d_transpose", OPERANDS).attrs("relay.attrs.Conv2DTransposeAttrs", conv::schema::TRANSPOSED2D),
    product("qnn.dense", OPERANDS).attrs("relay.attrs.DenseAttrs", dense::DENSE).class(FusionClass::OutFusable),
    product("qnn.contrib_dense_pack", OPERANDS)
        .attrs("relay.attrs.DensePackAttrs", dense::DENSE_PACK)
        .class(FusionClass::OutFusable),
    product("qnn.batch_matmul", &["x", "y", "x_zero_point", "y_zero_point", "x_scale", "y_scale"])
        .attrs("relay.attrs.BatchMatmulAttrs", dense::BATCH_MATMUL),
    OpDef::new(
        "qnn.avg_pool2d",
        &["data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"],
        pool_type,
    )
    .attrs("relay.attrs.AvgPool2DAttrs", pool::schema::AVERAGE2D)
    .class(FusionClass::OutFusable)
    .flops(|call| pooled(call).map_or(0, |(plain, _, _)| (plain.flops)(call)))
    .wire(kernel!(average_pool)),
];

const fn product(name: &'static str, operands: &'static [&'static str]) -> OpDef {
    OpDef::new(name, operands, product_type)
        .operand_types(operand_types)
        .flops(product_flops)
        .split(product_axes)
        .wire(kernel!(wire_product))
}

/// The integer operator that corresponds to the quantised one.
fn plain(call: &Call<'_>) -> Result<&'static OpDef, TypeError> {
    let name = call.def.name.replacen("qnn.", "nn.", 1);
    OpDef::find(&[conv::OPS, dense::OPS, pool::OPS], &name).ok_or_else(|| call.error(format!("{name} is not defined")))
}

fn product_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let plain = plain(call)?;
    let args = call.args.get(..2).ok_or_else(|| call.error("data and weight are missing"))?;
    let values = call.values.get(..2).unwrap_or(&[]);
    let mut result = (plain.infer)(&Call { def: plain, attrs: call.attrs, args, values })?;
    if let (Type::Tensor(tensor), None) = (&mut result, call.dtype("out_dtype")?) {
        tensor.dtype = DType::I32;
    }
    Ok(result)
}

fn operand_types(call: &Call<'_>, known: &mut [Option<Type>]) -> Result<(), TypeError> {
    let plain = plain(call)?;
    match (plain.infer_operands, known.get_mut(..2)) {
        (Some(infer), Some(known)) => infer(&Call { def: plain, ..*call }, known),
        _ => Ok(()),
    }
}

fn product_flops(call: &Typed<'_>) -> u64 {
    let (Ok(plain), Some(args)) = (plain(call), call.args.get(..2)) else { return 0 };
    (plain.flops)(&Typed { call: Call { def: plain, args, ..call.call }, out: call.out })
}

/// The split axes of the integer operator; per-channel parameters are sliced with the output channels of the weight.
fn product_axes(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let plain = plain(call)?;
    let (Some(split), Some(args)) = (plain.split, call.args.get(..2)) else { return Ok(Vec::new()) };
    let mut axes = split(&Typed { call: Call { def: plain, args, ..call.call }, out: call.out })?;
    let channels = output_axis(call, call.tensor(1)?)?;
    for axis in &mut axes {
        axis.operands.resize(call.args.len(), None);
        let cut = axis.operands[1].clone().filter(|access| Some(access.axis) == channels);
        for (index, operand) in axis.operands.iter_mut().enumerate().skip(2) {
            let vector = call.tensor(index)?.shape.elements().is_some_and(|n| n > 1);
            *operand = cut.clone().filter(|_| vector).map(|access| AccessMap { axis: 0, ..access });
        }
    }
    Ok(axes)
}

/// The weight's axis of output channels, to which per-channel zero points belong.
fn output_axis(call: &Typed<'_>, weight: &TensorType) -> Result<Option<usize>, TypeError> {
    let layout = match call.def.name {
        "qnn.conv2d" => call.text("kernel_layout", "OIHW")?,
        "qnn.conv2d_transpose" => call.text("kernel_layout", "IOHW")?,
        "qnn.batch_matmul" => return Ok(weight.shape.rank().checked_sub(1)),
        _ => return Ok(Some(0)),
    };
    Ok(layout.find('O').filter(|axis| *axis < weight.shape.rank()))
}

/// The integer operator, and the int32 types of its operand and result.
fn pooled(call: &Call<'_>) -> Result<(&'static OpDef, [Type; 1], Type), TypeError> {
    let plain = plain(call)?;
    let args = [Type::from(TensorType::new(DType::I32, call.tensor(0)?.shape.clone()))];
    let out = (plain.infer)(&Call { def: plain, attrs: call.attrs, args: &args, values: &[] })?;
    Ok((plain, args, out))
}

fn pool_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let (_, _, mut out) = pooled(call)?;
    if let Type::Tensor(tensor) = &mut out {
        tensor.dtype = call.tensor(0)?.dtype;
    }
    Ok(out)
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;
    use tract_core::ops::{cast::cast, math};

    use crate::families::qnn::convert::kernel::params;
    use crate::families::qnn::exact::{fits, is_in_range, less_zero_point, sum_of_blocks};
    use crate::families::qnn::fixed_point::Ties;
    use crate::families::qnn::params::{ComputeType, bounds, saturated};
    use crate::kernel::{Wiring, datum_type, pointwise::exact_integers};

    pub(super) fn wire_product(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let plain = plain(call)?;
        let (data, weight) = (call.tensor(0)?, call.tensor(1)?);
        if let Some(sum) = in_floats(wiring, call, plain, inputs)? {
            return Ok(tvec![sum]);
        }
        let data_type = without_zero_point(wiring, call, data, inputs[0], inputs[2], None)?;
        let weight_type = without_zero_point(wiring, call, weight, inputs[1], inputs[3], output_axis(call, weight)?)?;
        let args = [Type::from(data_type.1), Type::from(weight_type.1)];
        let call = Typed { call: Call { def: plain, args: &args, values: &[], ..call.call }, out: call.out };
        wiring.call(&call, &[data_type.0, weight_type.0])
    }

    /// The product of 8-bit operands by kernels for floats, exactly; `None` for layouts and types in which it is not.
    fn in_floats(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        plain: &'static OpDef,
        inputs: &[OutletId],
    ) -> TractResult<Option<OutletId>> {
        let types = [call.tensor(0)?, call.tensor(1)?];
        let is_byte = |ty: &TensorType| matches!(ty.dtype, DType::I8 | DType::U8);
        let Some(Summed { axes, terms }) = summed(call)? else { return Ok(None) };
        let length = match axes {
            Some(axes) => wiring.concrete(inputs[0])?[axes[0]],
            None => 1,
        };
        if !fits(length, terms) || !types.iter().all(|ty| is_byte(ty)) || call.result()?.dtype != DType::I32 {
            return Ok(None);
        }
        for (operand, zero_point) in [(0, 2), (1, 3)] {
            let of = wiring.fact(inputs[operand])?.datum_type;
            if !is_in_range(wiring, inputs[zero_point], of)? {
                return Ok(None);
            }
        }
        let mut operands = [inputs[0], inputs[1]];
        for (at, operand) in operands.iter_mut().enumerate() {
            let mut shape = vec![1; types[at].shape.rank()];
            let count = wiring.fact(inputs[at + 2])?.shape.volume().to_usize()?;
            if count > 1 {
                let axis = if at == 1 { output_axis(call, types[at])? } else { None };
                let Some(axis) = axis else { return Ok(None) };
                shape[axis] = count;
            }
            *operand = less_zero_point(wiring, *operand, Some(inputs[at + 2]), &shape, DatumType::F32)?;
        }
        let out = Type::from(TensorType::new(DType::F32, call.result()?.shape.clone()));
        let product = |wiring: &mut Wiring<'_>, blocks: [OutletId; 2]| {
            let mut args = Vec::with_capacity(2);
            for block in blocks {
                let shape: Vec<u64> = wiring.concrete(block)?.into_iter().map(|size| size as u64).collect();
                args.push(Type::from(TensorType::of(DType::F32, &shape)));
            }
            let call = Typed { call: Call { def: plain, args: &args, values: &[], ..call.call }, out: &out };
            Ok(wiring.call(&call, &blocks)?[0])
        };
        match axes {
            Some(axes) => sum_of_blocks(wiring, operands, axes, terms, product).map(Some),
            None => {
                let sum = product(wiring, operands)?;
                wiring.one(exact_integers(), &[sum]).map(Some)
            }
        }
    }

    /// What a product sums over.
    struct Summed {
        /// The axes of data and weight that can be divided into blocks; `None` if none can.
        axes: Option<[usize; 2]>,
        /// The terms for each index of these axes, or all.
        terms: usize,
    }

    /// What the product sums over; `None` where it is not known, or in another layout than NCHW.
    fn summed(call: &Typed<'_>) -> Result<Option<Summed>, TypeError> {
        let (data, weight) = (call.tensor(0)?, call.tensor(1)?);
        let (data_rank, weight_rank) = (data.shape.rank(), weight.shape.rank());
        let along = |axes: [usize; 2]| Some(Summed { axes: Some(axes), terms: 1 });
        Ok(match call.def.name {
            "qnn.dense" if data_rank > 0 && weight_rank == 2 => along([data_rank - 1, 1]),
            "qnn.batch_matmul" if data_rank == 3 && weight_rank == 3 => {
                let is_first = [call.flag("transpose_a", false)?, !call.flag("transpose_b", false)?];
                along(is_first.map(|first| if first { 1 } else { 2 }))
            }
            "qnn.conv2d" if weight_rank == 4 && has_plain_layout(call)? => {
                let is_whole = call.int("groups", 1)? == 1;
                let window = &weight.shape[if is_whole { 2 } else { 1 }..];
                let terms: Option<usize> = window.iter().map(|dim| dim.get().map(|n| n as usize)).product();
                terms.map(|terms| Summed { axes: is_whole.then_some([1, 1]), terms })
            }
            _ => None,
        })
    }

    fn has_plain_layout(call: &Typed<'_>) -> Result<bool, TypeError> {
        let is_plain = |layout: &str| layout.is_empty() || layout == "NCHW";
        Ok(is_plain(call.text("data_layout", "NCHW")?)
            && is_plain(call.text("out_layout", "")?)
            && call.text("kernel_layout", "OIHW")? == "OIHW")
    }

    /// A tensor minus its zero point, and its type: unchanged if the zero point is known to be 0, else int32.
    fn without_zero_point(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        ty: &TensorType,
        tensor: OutletId,
        zero_point: OutletId,
        axis: Option<usize>,
    ) -> TractResult<(OutletId, TensorType)> {
        if wiring.known(zero_point).is_some_and(|known| known.is_all_zero().unwrap_or(false)) {
            return Ok((tensor, ty.clone()));
        }
        let count = wiring.fact(zero_point)?.shape.volume().to_usize()?;
        let mut shape = vec![1; ty.shape.rank()];
        if count > 1 {
            let axis = axis.with_context(|| format!("{} does not support per-channel zero points", call.def.name))?;
            shape[axis] = count;
        }
        let shifted = less_zero_point(wiring, tensor, Some(zero_point), &shape, DatumType::I32)?;
        Ok((shifted, TensorType::new(DType::I32, ty.shape.clone())))
    }

    /// Requantises the data to the output's parameters, pools in int32, and saturates.
    pub(super) fn average_pool(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let (plain, args, out) = pooled(call)?;
        let wide = Typed { call: Call { args: &args, ..call.call }, out: &args[0] };
        let rescaled = wiring.host(
            &wide,
            |call, inputs| {
                let shape = inputs[0].shape();
                let from = params(call, &inputs[1], &inputs[2], shape, "axis")?;
                let to = params(call, &inputs[3], &inputs[4], shape, "axis")?;
                let values = crate::kernel::indexing::integers(&inputs[0])?;
                let values = from.requantize(&values, &to, ComputeType::Integer, Ties::Up);
                Ok(tvec!(saturated(&values, shape, DType::I32)?))
            },
            inputs,
        )?;
        let pooling = Typed { call: Call { def: plain, args: &args, values: &[], ..call.call }, out: &out };
        let pooled = wiring.call(&pooling, &rescaled)?;
        let (low, high) = bounds(call.result()?.dtype)?;
        let rank = wiring.fact(pooled[0])?.rank();
        let mut bound = |value: i64| wiring.constant(tensor0(value as i32).broadcast_into_rank(rank)?);
        let (low, high) = (bound(low)?, bound(high)?);
        let below = wiring.one(math::min(), &[pooled[0], high])?;
        let within = wiring.one(math::max(), &[below, low])?;
        let to = datum_type(call.result()?.dtype).context("the dtype is not supported")?;
        wiring.wire(cast(to), &[within])
    }
}
