//! Transposed convolutions with one to three spatial axes: type rule, cost and kernels.

use super::geometry::DATA_AXES;
use crate::{
    Call, TypeError, Typed,
    layout::{Layout, map_dim},
    window::Window,
};
use edgecut_graph::{DType, Dim, TensorType, Type};

/// Axes of the weight over 1, 2 and 3 spatial axes: (channels in, channels out / groups, spatial…).
const KERNEL_AXES: [&str; 4] = ["IO", "IOW", "IOHW", "IODHW"];

/// A transposed convolution over `RANK` spatial axes.
#[derive(Debug, Clone)]
pub(crate) struct Transposed<const RANK: usize> {
    pub data: Layout,
    pub kernel: Layout,
    pub out: Layout,
    pub batch: Dim,
    pub channels_in: Dim,
    pub channels_out: Dim,
    pub groups: u64,
    pub spatial: Vec<Dim>,
    /// The windows of the convolution of which this is the transpose.
    pub windows: Vec<Window>,
    /// Output padding: elements at the end of each axis beyond the minimum size.
    pub output_padding: Vec<u64>,
    pub out_dtype: DType,
}

impl<const RANK: usize> Transposed<RANK> {
    const DATA: &'static str = DATA_AXES[RANK];
    const KERNEL: &'static str = KERNEL_AXES[RANK];

    /// The transposed convolution of a call whose types are known.
    pub fn of(call: &Call<'_>) -> Result<Self, TypeError> {
        Self::read(call, call.tensor(0)?, Some(call.tensor(1)?))
    }

    fn read(call: &Call<'_>, data: &TensorType, weight: Option<&TensorType>) -> Result<Self, TypeError> {
        let layout = call.layout("data_layout", Self::DATA, Self::DATA)?;
        let out = call.out_layout(&layout, Self::DATA)?;
        let sizes = call.sizes_in(&layout, data, Self::DATA)?;
        let groups = call.groups()?;
        let (mut kernel, mut weight_sizes) = (call.layout("kernel_layout", Self::KERNEL, Self::KERNEL)?, None);
        if let Some(weight) = weight {
            let found = call.sizes_in(&kernel, weight, Self::KERNEL)?;
            let (found, layout) = if found[0].same(sizes[1]) || found[0].get().is_none() {
                (found, kernel)
            } else {
                // TVM up to 0.11 writes OIHW although the input channels come first.
                let stored = Layout::parse(Self::KERNEL).map_err(|e| call.error(e))?;
                (call.sizes_in(&stored, weight, Self::KERNEL)?, stored)
            };
            if !found[0].same(sizes[1]) && found[0].get().is_some() && sizes[1].get().is_some() {
                return Err(call.error(format!("{weight} is incompatible with data of {} channels", sizes[1])));
            }
            (kernel, weight_sizes) = (layout, Some(found));
        }
        let kernel_size = match (call.attr("kernel_size"), &weight_sizes) {
            (Some(_), _) => call.steps("kernel_size", RANK, 1)?,
            (None, Some(sizes)) => call.known(&sizes[2..], "the weight")?,
            (None, None) => return Err(call.error("the weight's type cannot be inferred without kernel_size")),
        };
        let channels_out = match (call.optional_int("channels")?, &weight_sizes) {
            (Some(n), _) => Dim::Known(u64::try_from(n).map_err(|_| call.error("channels must not be negative"))?),
            // As in TVM, which takes the channels per group for the total here.
            (None, Some(sizes)) => sizes[1],
            (None, None) => return Err(call.error("the weight's type cannot be inferred without channels")),
        };
        if let Some(sizes) = &weight_sizes
            && !(sizes[1].get().is_none()
                || call.attr("channels").is_none()
                || sizes[1].same(map_dim(channels_out, |n| n / groups)))
        {
            return Err(
                call.error(format!("the weight is incompatible with channels={channels_out} and {groups} groups"))
            );
        }
        if sizes[1].get().is_some_and(|c| c % groups != 0) {
            return Err(call.error(format!("{} channels are not divisible into {groups} groups", sizes[1])));
        }
        Ok(Transposed {
            windows: call.windows(&kernel_size)?,
            output_padding: call.sizes_or_zero("output_padding", RANK)?,
            out_dtype: call.dtype("out_dtype")?.unwrap_or(data.dtype),
            data: layout,
            kernel,
            out,
            batch: sizes[0],
            channels_in: sizes[1],
            channels_out,
            groups,
            spatial: sizes[2..].to_vec(),
        })
    }

    /// The size of the result along spatial axis `axis`.
    fn out_size(&self, call: &Call<'_>, axis: usize) -> Result<Dim, TypeError> {
        let (window, extra) = (&self.windows[axis], self.output_padding[axis]);
        let Some(n) = self.spatial[axis].get() else { return Ok(Dim::Any) };
        let reach = n.saturating_sub(1).saturating_mul(window.stride) + window.extent() + extra;
        let size = reach
            .checked_sub(window.before + window.after)
            .ok_or_else(|| call.error("the padding is larger than the result"))?;
        Ok(map_dim(self.spatial[axis], |_| size))
    }
}

pub(crate) fn transposed_type<const RANK: usize>(call: &Call<'_>) -> Result<Type, TypeError> {
    let conv = Transposed::<RANK>::of(call)?;
    let mut sizes = vec![conv.batch, conv.channels_out];
    for axis in 0..RANK {
        sizes.push(conv.out_size(call, axis)?);
    }
    let shape = conv.out.shape(Transposed::<RANK>::DATA, &sizes);
    let shape = shape.ok_or_else(|| call.error("out_layout has other axes"))?;
    Ok(TensorType::new(conv.out_dtype, shape).into())
}

/// The weight's type from `channels` and `kernel_size`.
pub(crate) fn transposed_operands<const RANK: usize>(
    call: &Call<'_>,
    known: &mut [Option<Type>],
) -> Result<(), TypeError> {
    if let [Some(Type::Tensor(data)), weight @ None, ..] = known
        && call.attr("channels").is_some()
        && call.attr("kernel_size").is_some()
    {
        let conv = Transposed::<RANK>::read(call, data, None)?;
        let mut sizes = vec![conv.channels_in, map_dim(conv.channels_out, |n| n / conv.groups)];
        sizes.extend(conv.windows.iter().map(|w| Dim::Known(w.size)));
        let shape = conv.kernel.shape(Transposed::<RANK>::KERNEL, &sizes);
        *weight = shape.map(|shape| TensorType::new(data.dtype, shape).into());
    }
    Ok(())
}

/// Two operations per tap of each *input* element, as the scatter computes.
pub(crate) fn transposed_flops<const RANK: usize>(call: &Typed<'_>) -> u64 {
    let Ok(conv) = Transposed::<RANK>::of(call) else { return 0 };
    let inputs = call.tensor(0).ok().and_then(|t| t.shape.elements()).unwrap_or(0);
    let per_group = conv.channels_out.get().unwrap_or(0) / conv.groups;
    conv.windows.iter().map(|w| w.size).fold(inputs.saturating_mul(per_group), u64::saturating_mul).saturating_mul(2)
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::{
        internal::*,
        ops::cnn::{Deconv, KernelFormat},
    };

    use crate::families::conv::forward::{Arithmetic, pool_spec};
    use crate::kernel::{
        self, Wiring,
        element::{Number, for_dtype},
        window_loops::{Channels, Rows},
    };

    /// Wires a transposed convolution over `RANK` spatial axes.
    pub(crate) fn transposed_kernel<const RANK: usize>(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let conv = Transposed::<RANK>::of(call)?;
        let &[data, weight, ..] = inputs else { bail!("a transposed convolution has two operands") };
        let out = kernel::fact(call.result()?)?.datum_type;
        let layout = Layout::parse(Transposed::<RANK>::DATA).map_err(TractError::msg)?;
        let plain = Layout::parse(Transposed::<RANK>::KERNEL).map_err(TractError::msg)?;
        let data = conv.data.wire(&layout, wiring, data)?;
        let weight = conv.kernel.wire(&plain, wiring, weight)?;
        let (a, b) = (wiring.fact(data)?.datum_type, wiring.fact(weight)?.datum_type);
        let made = match Arithmetic::choose(a, b, out, u64::MAX) {
            Arithmetic::Float(dt) => {
                let (data, weight) = (wiring.cast(data, dt)?, wiring.cast(weight, dt)?);
                deconv(&conv, wiring, data, weight)?
            }
            _ => {
                let (data, weight) = (wiring.cast(data, out)?, wiring.cast(weight, out)?);
                loops(&conv, call, wiring, data, weight)?
            }
        };
        let made = wiring.cast(made, out)?;
        Ok(tvec![layout.wire(&conv.out, wiring, made)?])
    }

    /// Wires tract's kernel for data (N, C, spatial…) and weight (I, O / groups, spatial…).
    fn deconv<const RANK: usize>(
        conv: &Transposed<RANK>,
        wiring: &mut Wiring<'_>,
        data: OutletId,
        mut weight: OutletId,
    ) -> TractResult<OutletId> {
        let fact = wiring.fact(weight)?;
        let (dtype, groups) = (fact.datum_type, conv.groups as usize);
        let (channels_in, per_group) = (fact.shape[0].to_usize()?, fact.shape[1].to_usize()?);
        ensure!(
            conv.channels_out.get() == Some((per_group * groups) as u64),
            "the result's type has the channels of one group, the operator makes those of {groups}: write `channels`"
        );
        // (groups · I, O, …) to (groups · O, I, …)
        let dim = |n: usize| n.to_dim();
        weight = wiring.one(
            AxisOp::Reshape(0, tvec![dim(channels_in)], tvec![dim(groups), dim(channels_in / groups)]),
            &[weight],
        )?;
        weight = wiring.one(AxisOp::Move(1, 2), &[weight])?;
        weight = wiring
            .one(AxisOp::Reshape(0, tvec![dim(groups), dim(per_group)], tvec![dim(groups * per_group)]), &[weight])?;
        let op = Deconv {
            pool_spec: pool_spec(&conv.windows, tract_core::ops::nn::DataFormat::NCHW, channels_in, per_group * groups),
            kernel_format: KernelFormat::OIHW,
            adjustments: conv.output_padding.iter().map(|n| *n as usize).collect(),
            group: groups,
        };
        let bias = wiring.constant(Tensor::zero_scalar_dt(dtype)?)?;
        wiring.one(op, &[data, weight, bias])
    }

    /// Wires the loops for data (N, C, spatial…) and weight (I, O / groups, spatial…) of one integer type.
    fn loops<const RANK: usize>(
        conv: &Transposed<RANK>,
        call: &Typed<'_>,
        wiring: &mut Wiring<'_>,
        data: OutletId,
        weight: OutletId,
    ) -> TractResult<OutletId> {
        let (dtype, shape) = (wiring.fact(data)?.datum_type, wiring.concrete(data)?);
        let (groups, per_group) = (conv.groups as usize, wiring.concrete(weight)?[1]);
        let mut out = vec![shape[0], groups * per_group];
        for axis in 0..RANK {
            out.push(conv.out_size(call, axis)?.get().context("a size is unknown")? as usize);
        }
        let channels = Channels { batch: shape[0], groups, small: shape[1] / groups, large: per_group };
        let rows = Rows::new(&conv.windows, &shape[2..], &out[2..]);
        let made = wiring.custom(
            "TransposedConvolution",
            tvec![dtype.fact(&out)],
            &[data, weight],
            move |inputs| for_dtype!(dtype, T in number => scattered::<T>(&rows, channels, inputs, &out)),
        )?;
        Ok(made[0])
    }

    fn scattered<T: Number>(
        rows: &Rows,
        channels: Channels,
        inputs: &[TValue],
        out: &[usize],
    ) -> TractResult<TVec<Tensor>> {
        let mut result = Tensor::zero_dt(T::datum_type(), out)?;
        let (data, weight) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
        rows.scatter(
            channels,
            data.as_slice::<T>()?,
            weight.as_slice::<T>()?,
            result.try_as_plain_ram_mut()?.as_slice_mut::<T>()?,
        );
        Ok(tvec![result])
    }
}
