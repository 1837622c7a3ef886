//! Gradients of pooling with respect to its input.

use crate::{AttrDef, Call, FusionClass, OpDef, TypeError, window::Window};

/// Definition of the gradient of two-dimensional max pooling (`LARGEST == MAX`) or average pooling. The result has the
/// type of `data`.
pub(crate) const fn gradient<const LARGEST: bool>(
    name: &'static str,
    attrs_key: &'static str,
    attrs: &'static [AttrDef],
) -> OpDef {
    OpDef::new(name, &["out_grad", "data"], |call| {
        windows(call)?;
        Ok(call.tensor(1)?.clone().into())
    })
    .attrs(attrs_key, attrs)
    .class(FusionClass::OutFusable)
    .flops(|call| {
        let size = windows(call).map_or(0, |w| w[0].size * w[1].size);
        call.tensor(0).ok().and_then(|t| t.shape.elements()).map_or(0, |n| n.saturating_mul(size))
    })
    .wire(kernel!(kernel::<LARGEST>))
}

/// The windows of the pooling; dilation is ignored.
fn windows(call: &Call<'_>) -> Result<Vec<Window>, TypeError> {
    if call.attr("pool_size").is_none() {
        return Err(call.error("pool_size is missing"));
    }
    let windows = call.windows(&call.steps("pool_size", 2, 1)?)?;
    Ok(windows.into_iter().map(|w| Window { dilation: 1, ..w }).collect())
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::families::pool::{axes::MAX, sliding::kernel::divisors};
    use crate::{
        Typed,
        kernel::{
            Wiring,
            element::{Number, for_dtype},
            window_loops::Rows,
        },
        layout::Layout,
    };

    pub(super) fn kernel<const LARGEST: bool>(
        wiring: &mut Wiring<'_>,
        call: &Typed<'_>,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let layout = call.layout("layout", "NCHW", "NCHW")?;
        let plain = Layout::parse("NCHW").map_err(TractError::msg)?;
        let (grad, data) = (layout.wire(&plain, wiring, inputs[0])?, layout.wire(&plain, wiring, inputs[1])?);
        let windows = windows(call)?;
        let given = wiring.fact(data)?.datum_type;
        let dtype = if given == DatumType::F16 { DatumType::F32 } else { given };
        let operands = [wiring.cast(grad, dtype)?, wiring.cast(data, dtype)?];
        let (counts, shape) = (wiring.concrete(grad)?, wiring.concrete(data)?);
        let rows = Rows::new(&windows, &counts[2..], &shape[2..]);
        let divisors = match call.flag("count_include_pad", false)? {
            true => vec![(windows[0].size * windows[1].size) as i64; counts[2] * counts[3]],
            false => divisors(&windows, &shape[2..], &counts[2..], false),
        };
        let made = wiring.custom("PoolGradient", tvec![dtype.fact(&shape)], &operands, move |inputs| {
            for_dtype!(dtype, T in number => match LARGEST == MAX {
                true => max_gradient::<T>(&rows, inputs, &shape, divisors.len()),
                false => average_gradient::<T>(&rows, inputs, &shape, &divisors),
            })
        })?[0];
        let made = wiring.cast(made, given)?;
        Ok(tvec![plain.wire(&layout, wiring, made)?])
    }

    /// Adds each gradient to the first maximum of its window. `shape` is that of the data, NCHW; `windows` is their number
    /// per plane.
    fn max_gradient<T: Number>(
        rows: &Rows,
        inputs: &[TValue],
        shape: &[usize],
        windows: usize,
    ) -> TractResult<TVec<Tensor>> {
        let mut result = Tensor::zero_dt(T::datum_type(), shape)?;
        {
            let (grad, data) = (inputs[0].try_as_plain_ram()?, inputs[1].try_as_plain_ram()?);
            let mut made = result.try_as_plain_ram_mut()?;
            let plane = (shape[2] * shape[3]).max(1);
            let planes =
                data.as_slice::<T>()?.chunks_exact(plane).zip(grad.as_slice::<T>()?.chunks_exact(windows.max(1)));
            for ((data, grad), made) in planes.zip(made.as_slice_mut::<T>()?.chunks_exact_mut(plane)) {
                let mut best: Vec<Option<usize>> = vec![None; windows];
                for (window, element) in rows.pairs() {
                    if best[window].is_none_or(|best| data[element] > data[best]) {
                        best[window] = Some(element);
                    }
                }
                for (best, grad) in best.iter().zip(grad) {
                    if let Some(best) = best {
                        made[*best] = made[*best].add(*grad);
                    }
                }
            }
        }
        Ok(tvec![result])
    }

    /// Distributes each gradient evenly over its window. `divisors` are the sizes of the windows of a plane.
    fn average_gradient<T: Number>(
        rows: &Rows,
        inputs: &[TValue],
        shape: &[usize],
        divisors: &[i64],
    ) -> TractResult<TVec<Tensor>> {
        let mut result = Tensor::zero_dt(T::datum_type(), shape)?;
        {
            let grad = inputs[0].try_as_plain_ram()?;
            let mut made = result.try_as_plain_ram_mut()?;
            let planes = grad.as_slice::<T>()?.chunks_exact(divisors.len().max(1));
            for (grad, made) in planes.zip(made.as_slice_mut::<T>()?.chunks_exact_mut((shape[2] * shape[3]).max(1))) {
                let shares: Vec<T> = grad.iter().zip(divisors).map(|(g, n)| g.div(T::of_i64(*n))).collect();
                for (window, element) in rows.pairs() {
                    made[element] = made[element].add(shares[window]);
                }
            }
        }
        Ok(tvec![result])
    }
}
