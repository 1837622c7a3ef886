//! Separable resampling: each element along an axis is a weighted sum of a few elements of the data (its taps).

use tract_core::{internal::*, num_traits::Float};

use crate::taps::Taps;

/// `data` with each of `axes` resampled by its taps.
pub(crate) fn resampled<T: Float + Datum>(data: &Tensor, axes: &[(usize, Taps)]) -> TractResult<Tensor> {
    let mut made = data.clone();
    for (axis, taps) in axes {
        made = along_axis::<T>(&made, *axis, taps)?;
    }
    Ok(made)
}

fn along_axis<T: Float + Datum>(data: &Tensor, axis: usize, taps: &Taps) -> TractResult<Tensor> {
    let mut shape: TVec<usize> = data.shape().into();
    let inner: usize = shape[axis + 1..].iter().product();
    let n = std::mem::replace(&mut shape[axis], taps.len());
    let plain = data.try_as_plain_ram()?;
    let mut made = vec![T::zero(); shape.iter().product()];
    if inner == 0 || n == 0 {
        return Tensor::from_shape(&shape, &made);
    }
    let mut lines = made.chunks_exact_mut(inner);
    for block in plain.as_slice::<T>()?.chunks_exact(n * inner) {
        for (taps, line) in taps.iter().zip(lines.by_ref()) {
            for (index, weight) in taps {
                let weight = T::from(*weight).context("a weight is finite")?;
                let from = &block[index * inner..(index + 1) * inner];
                line.iter_mut().zip(from).for_each(|(out, x)| *out = *out + *x * weight);
            }
        }
    }
    Tensor::from_shape(&shape, &made)
}
