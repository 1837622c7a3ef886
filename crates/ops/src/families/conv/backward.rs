//! `nn.conv2d_backward_weight`: the gradient of a convolution with respect to its weight.

use super::geometry::{DATA_AXES, KERNEL_AXES};
use crate::{
    Call, TypeError, Typed,
    layout::{Layout, map_dim},
    window::Window,
};
use edgecut_graph::{Dim, TensorType, Type};

const DATA: &str = DATA_AXES[2];

const WEIGHT: &str = KERNEL_AXES[2];

/// `nn.conv2d_backward_weight(grad, data)`. Its attributes are those of a convolution, with different meanings:
/// `data_layout` is the layout of the gradient, `kernel_layout` of the data, `out_layout` of the weight.
struct Backward {
    grad: Layout,
    data: Layout,
    weight: Layout,
    /// Sizes of the weight: (O, I / groups, H, W).
    sizes: Vec<Dim>,
    windows: Vec<Window>,
    groups: u64,
}

impl Backward {
    fn of(call: &Call<'_>) -> Result<Backward, TypeError> {
        let (grad_type, data_type) = (call.tensor(0)?, call.tensor(1)?);
        let grad = call.layout("data_layout", DATA, DATA)?;
        let data = call.layout("kernel_layout", DATA, DATA)?;
        let weight = call.layout("out_layout", WEIGHT, WEIGHT)?;
        let (channels_out, channels_in) =
            (call.sizes_in(&grad, grad_type, DATA)?[1], call.sizes_in(&data, data_type, DATA)?[1]);
        if call.attr("kernel_size").is_none() {
            return Err(call.error("kernel_size is missing"));
        }
        let window = call.steps("kernel_size", 2, 1)?;
        let groups = call.groups()?;
        let mut sizes = vec![channels_out, map_dim(channels_in, |n| n / groups)];
        sizes.extend(window.iter().map(|n| Dim::Known(*n)));
        Ok(Backward { windows: call.windows(&window)?, grad, data, weight, sizes, groups })
    }
}

pub(crate) fn backward_type(call: &Call<'_>) -> Result<Type, TypeError> {
    let backward = Backward::of(call)?;
    let shape = backward.weight.shape(WEIGHT, &backward.sizes);
    let shape = shape.ok_or_else(|| call.error("out_layout has other axes"))?;
    Ok(TensorType::new(call.dtype("out_dtype")?.unwrap_or(call.tensor(0)?.dtype), shape).into())
}

/// Two operations per element of the gradient and tap of its window.
pub(crate) fn backward_flops(call: &Typed<'_>) -> u64 {
    let Ok(backward) = Backward::of(call) else { return 0 };
    let grads = call.tensor(0).ok().and_then(|t| t.shape.elements()).unwrap_or(0);
    let taps = backward.sizes[1..].iter().try_fold(2u64, |n, d| Some(n.saturating_mul(d.get()?)));
    grads.saturating_mul(taps.unwrap_or(0))
}

#[cfg(feature = "kernels")]
pub(crate) mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::kernel::{
        self, Wiring,
        element::{Number, for_dtype},
        window_loops::{Channels, Rows},
    };

    pub(crate) fn backward_kernel(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let backward = Backward::of(call)?;
        let dtype = kernel::fact(call.result()?)?.datum_type;
        let wide = if dtype == DatumType::F16 { DatumType::F32 } else { dtype };
        let plain = Layout::parse(DATA).map_err(TractError::msg)?;
        let grad = backward.grad.wire(&plain, wiring, inputs[0])?;
        let data = backward.data.wire(&plain, wiring, inputs[1])?;
        let operands = [wiring.cast(grad, wide)?, wiring.cast(data, wide)?];
        let (grad, data) = (wiring.concrete(grad)?, wiring.concrete(data)?);
        let groups = backward.groups as usize;
        let channels = Channels { batch: grad[0], groups, small: grad[1] / groups, large: data[1] / groups };
        let out: Vec<usize> = backward
            .sizes
            .iter()
            .map(|d| d.get().map(|n| n as usize))
            .collect::<Option<_>>()
            .context("a size is unknown")?;
        let rows = Rows::new(&backward.windows, &grad[2..], &data[2..]);
        let made = wiring.custom(
            "WeightGradient",
            tvec![wide.fact(&out)],
            &operands,
            move |inputs| for_dtype!(wide, T in number => correlate::<T>(&rows, channels, inputs, &out)),
        )?[0];
        let made = wiring.cast(made, dtype)?;
        let stored = Layout::parse(WEIGHT).map_err(TractError::msg)?;
        Ok(tvec![stored.wire(&backward.weight, wiring, made)?])
    }

    fn correlate<T: Number>(
        rows: &Rows,
        channels: Channels,
        inputs: &[TValue],
        out: &[usize],
    ) -> TractResult<TVec<Tensor>> {
        let mut result = Tensor::zero_dt(T::datum_type(), out)?;
        let (grad, data) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
        let (grad, data) = (grad.as_slice::<T>()?, data.as_slice::<T>()?);
        rows.correlate(channels, grad, data, result.try_as_plain_ram_mut()?.as_slice_mut::<T>()?);
        Ok(tvec![result])
    }
}
