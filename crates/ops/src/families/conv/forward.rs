//! Kernels of convolutions: tract's where it supports the dtypes, loops for other integers.

use tract_core::internal::*;
use tract_core::ops::{
    cnn::{Conv, KernelFormat, PaddingSpec, PoolSpec},
    nn::DataFormat,
};

use super::geometry::{Convolution, WeightForm};
use crate::{
    Typed,
    kernel::{
        self, Wiring,
        element::{Number, for_dtype},
        window_loops::{Channels, Rows},
    },
    layout::Layout,
    window::{Rounding, Window},
};
use edgecut_graph::Dim;

/// The arithmetic of a convolution or a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Floats of this type; half floats are computed in single precision.
    Float(DatumType),
    /// Integers whose sums are exact in single precision.
    ExactFloat,
    /// 8-bit integers accumulated in int32 by tract's kernels.
    Bytes,
    /// Other integers, with wrap-around.
    Wrapping,
}

impl Arithmetic {
    /// The arithmetic for operands of types `a` and `b` and sums of `terms` products of type `out`.
    pub fn choose(a: DatumType, b: DatumType, out: DatumType, terms: u64) -> Arithmetic {
        let bits = |dt: DatumType| dt.size_of() * 8 - usize::from(dt.is_signed());
        match out {
            DatumType::F16 => Arithmetic::Float(DatumType::F32),
            DatumType::F32 | DatumType::F64 => Arithmetic::Float(out),
            _ if a.is_float() || b.is_float() => Arithmetic::Float(DatumType::F64),
            _ if bits(a) + bits(b) < 24 && terms <= 1 << (24 - bits(a) - bits(b)) => Arithmetic::ExactFloat,
            _ if a.size_of() == 1 && b.size_of() == 1 => Arithmetic::Bytes,
            _ => Arithmetic::Wrapping,
        }
    }
}

/// Wires a convolution over `RANK` spatial axes.
pub(crate) fn conv_kernel<const RANK: usize>(
    wiring: &mut Wiring<'_>,
    call: &Typed<'_>,
    inputs: &[OutletId],
) -> TractResult<TVec<OutletId>> {
    let conv = Convolution::<RANK>::of(call)?;
    let &[data, weight, ..] = inputs else { bail!("a convolution has two operands") };
    let weight = plain_weight(&conv, wiring, weight)?;
    convolve(&conv, wiring, data, weight, kernel::fact(call.result()?)?.datum_type)
}

/// Wires a convolution of data in its layout with a weight (channels out, channels in / groups, spatial…).
pub(crate) fn convolve<const RANK: usize>(
    conv: &Convolution<RANK>,
    wiring: &mut Wiring<'_>,
    data: OutletId,
    weight: OutletId,
    out: DatumType,
) -> TractResult<TVec<OutletId>> {
    let (a, b) = (wiring.fact(data)?.datum_type, wiring.fact(weight)?.datum_type);
    let arithmetic = Arithmetic::choose(a, b, out, conv.taps());
    let (layout, format) = tract_layout::<RANK>(&conv.data, arithmetic)?;
    let data = conv.data.wire(&layout, wiring, data)?;
    let made = match arithmetic {
        Arithmetic::Float(dt) => {
            let (data, weight) = (wiring.cast(data, dt)?, wiring.cast(weight, dt)?);
            let bias = wiring.constant(Tensor::zero_scalar_dt(dt)?)?;
            wiring.one(tract_conv(conv, format, None)?, &[data, weight, bias])?
        }
        Arithmetic::ExactFloat => {
            let (data, weight) = (wiring.cast(data, DatumType::F32)?, wiring.cast(weight, DatumType::F32)?);
            let bias = wiring.constant(tensor0(0f32))?;
            let sums = wiring.one(tract_conv(conv, format, None)?, &[data, weight, bias])?;
            wiring.cast(sums, DatumType::I32)?
        }
        Arithmetic::Bytes => {
            let (zero, one) = (wiring.constant(tensor0(0i32))?, wiring.constant(tensor0(1f32))?);
            let operands = [data, weight, zero, zero, one, zero, one, zero, one];
            wiring.one(tract_conv(conv, format, Some(DatumType::I32))?, &operands)?
        }
        Arithmetic::Wrapping => {
            let (data, weight) = (wiring.cast(data, out)?, wiring.cast(weight, out)?);
            loops(conv, wiring, data, weight)?
        }
    };
    let made = wiring.cast(made, out)?;
    Ok(tvec![layout.wire(&conv.out, wiring, made)?])
}

/// The weight as (channels out, channels in / groups, spatial…).
fn plain_weight<const RANK: usize>(
    conv: &Convolution<RANK>,
    wiring: &mut Wiring<'_>,
    weight: OutletId,
) -> TractResult<OutletId> {
    let plain = Layout::parse(Convolution::<RANK>::KERNEL).map_err(TractError::msg)?;
    let weight = conv.kernel.wire(&plain, wiring, weight)?;
    if conv.form == WeightForm::OutIn {
        return Ok(weight);
    }
    let shape = &wiring.fact(weight)?.shape;
    let (channels, multiplier) = (shape[0].clone(), shape[1].clone());
    let joined = tvec![channels.clone() * &multiplier, 1.to_dim()];
    wiring.one(AxisOp::Reshape(0, tvec![channels, multiplier], joined), &[weight])
}

/// The layout closest to `from` that tract's kernels, or the loops, support.
fn tract_layout<const RANK: usize>(from: &Layout, arithmetic: Arithmetic) -> TractResult<(Layout, DataFormat)> {
    let last = Layout::parse(["NC", "NWC", "NHWC", "NDHWC"][RANK]).map_err(TractError::msg)?;
    if *from == last && arithmetic != Arithmetic::Wrapping {
        return Ok((last, DataFormat::NHWC));
    }
    Ok((Layout::parse(Convolution::<RANK>::DATA).map_err(TractError::msg)?, DataFormat::NCHW))
}

fn tract_conv<const RANK: usize>(
    conv: &Convolution<RANK>,
    format: DataFormat,
    q_params: Option<DatumType>,
) -> TractResult<Conv> {
    let channels = |dim: Dim| dim.get().context("the number of channels is unknown").map(|n| n as usize);
    Ok(Conv {
        pool_spec: pool_spec(&conv.windows, format, channels(conv.channels_in)?, channels(conv.channels_out)?),
        kernel_fmt: KernelFormat::OIHW,
        group: conv.groups as usize,
        q_params,
    })
}

/// Windows as tract's [`PoolSpec`].
pub(crate) fn pool_spec(
    windows: &[Window],
    data_format: DataFormat,
    input_channels: usize,
    output_channels: usize,
) -> PoolSpec {
    let all = |of: fn(&Window) -> u64| windows.iter().map(|w| of(w) as usize).collect::<TVec<usize>>();
    PoolSpec {
        data_format,
        kernel_shape: all(|w| w.size),
        padding: PaddingSpec::Explicit(all(|w| w.before), all(|w| w.after)),
        dilations: Some(all(|w| w.dilation)),
        strides: Some(all(|w| w.stride)),
        input_channels,
        output_channels,
    }
}

/// Wires the loops for data (N, C, spatial…) and weight (O, I, spatial…) of one integer type.
fn loops<const RANK: usize>(
    conv: &Convolution<RANK>,
    wiring: &mut Wiring<'_>,
    data: OutletId,
    weight: OutletId,
) -> TractResult<OutletId> {
    let (dtype, shape, weight_shape) =
        (wiring.fact(data)?.datum_type, wiring.concrete(data)?, wiring.concrete(weight)?);
    let groups = conv.groups as usize;
    let mut out = vec![shape[0], weight_shape[0]];
    for (n, window) in shape[2..].iter().zip(&conv.windows) {
        out.push(
            window.count(*n as u64, Rounding::Floor).context("the window is larger than the padded axis")? as usize
        );
    }
    let channels = Channels { batch: shape[0], groups, small: weight_shape[0] / groups, large: shape[1] / groups };
    let rows = Rows::new(&conv.windows, &out[2..], &shape[2..]);
    let made = wiring.custom(
        "Convolution",
        tvec![dtype.fact(&out)],
        &[data, weight],
        move |inputs| for_dtype!(dtype, T in number => gathered::<T>(&rows, channels, inputs, &out)),
    )?;
    Ok(made[0])
}

fn gathered<T: Number>(rows: &Rows, channels: Channels, inputs: &[TValue], out: &[usize]) -> TractResult<TVec<Tensor>> {
    let mut result = Tensor::zero_dt(T::datum_type(), out)?;
    let (data, weight) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
    rows.gather(
        channels,
        data.as_slice::<T>()?,
        weight.as_slice::<T>()?,
        result.try_as_plain_ram_mut()?.as_slice_mut::<T>()?,
    );
    Ok(tvec![result])
}
