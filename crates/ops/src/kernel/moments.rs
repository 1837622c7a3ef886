//! Kernels of normalisations that compute statistics of the data (instance, layer, group), and of local response
//! normalisation.

use tract_core::internal::*;
use tract_core::num_traits::Float;

/// Groups of elements that are normalised together: a tensor is a repetition of `count` contiguous groups of `channels
/// · inner` elements; each channel has a scale and a shift.
#[derive(Debug, Clone, Copy)]
pub struct NormGroups {
    pub count: usize,
    pub channels: usize,
    pub inner: usize,
}

/// Subtracts each group's mean, divides by √(biased variance + `epsilon`), scales and shifts. The inputs are data,
/// scales and shifts; `scale` and `center` enable the latter two.
pub(crate) fn normalised<T: Float + Datum>(
    inputs: &[TValue],
    groups: NormGroups,
    epsilon: T,
    scale: bool,
    center: bool,
) -> TractResult<TVec<Tensor>> {
    let mut result = inputs[0].clone().into_tensor();
    let NormGroups { count, channels, inner } = groups;
    let len = channels * inner;
    if len == 0 || result.len() == 0 {
        return Ok(tvec![result]);
    }
    let (gamma, beta) = (inputs[1].try_as_plain_ram()?, inputs[2].try_as_plain_ram()?);
    let (gamma, beta) = (gamma.as_slice::<T>()?, beta.as_slice::<T>()?);
    let elements = T::from(len).context("the count is not representable")?;
    {
        let mut plain = result.try_as_plain_ram_mut()?;
        for (number, group) in plain.as_slice_mut::<T>()?.chunks_exact_mut(len).enumerate() {
            let mean = sum(group, |x| x) / elements;
            let variance = sum(group, |x| (x - mean) * (x - mean)) / elements;
            let factor = (variance + epsilon).sqrt().recip();
            let first = number % count * channels;
            let slopes = gamma[first..].iter().map(|g| if scale { *g * factor } else { factor });
            let shifts = beta[first..].iter().map(|b| if center { *b } else { T::zero() });
            if inner == 1 {
                group.iter_mut().zip(slopes.zip(shifts)).for_each(|(x, (g, b))| *x = (*x - mean) * g + b);
            } else {
                for (run, (g, b)) in group.chunks_exact_mut(inner).zip(slopes.zip(shifts)) {
                    run.iter_mut().for_each(|x| *x = (*x - mean) * g + b);
                }
            }
        }
    }
    Ok(tvec![result])
}

/// The sum of a function of all elements, in sixteen accumulators: vectorised, with smaller rounding errors.
fn sum<T: Float>(values: &[T], of: impl Fn(T) -> T) -> T {
    let mut lanes = [T::zero(); 16];
    let chunks = values.chunks_exact(16);
    let rest = chunks.remainder().iter().fold(T::zero(), |sum, x| sum + of(*x));
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, x)| *lane = *lane + of(*x));
    }
    lanes.iter().fold(rest, |sum, lane| sum + *lane)
}

/// Local response normalisation: divides every element by `(bias + alpha / size · Σx²)^beta` over its `size` neighbours,
/// `before` of them before it, along an axis of `channels`, which are `inner` elements apart. `constants` are bias, alpha and beta.
pub(crate) fn local_response<T: Float + Datum>(
    data: &Tensor,
    channels: usize,
    inner: usize,
    (size, before): (usize, usize),
    constants: [T; 3],
) -> TractResult<TVec<Tensor>> {
    let [bias, alpha, beta] = constants;
    let mut result = data.clone();
    let share = alpha / T::from(size).context("the count is not representable")?;
    let plain = data.try_as_plain_ram()?;
    let whole = (channels * inner).max(1);
    {
        let mut made = result.try_as_plain_ram_mut()?;
        for (from, to) in
            plain.as_slice::<T>()?.chunks_exact(whole).zip(made.as_slice_mut::<T>()?.chunks_exact_mut(whole))
        {
            for (at, x) in to.iter_mut().enumerate() {
                let (channel, offset) = (at / inner, at % inner);
                let first = channel.saturating_sub(before);
                let end = (channel + size).saturating_sub(before).min(channels);
                let squares = (first..end).fold(T::zero(), |sum, c| {
                    let neighbour = from[c * inner + offset];
                    sum + neighbour * neighbour
                });
                *x = *x / (bias + share * squares).powf(beta);
            }
        }
    }
    Ok(tvec![result])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_its_own_statistics() {
        let data = tensor1(&[1f32, 3., 5., 7., -1., 1., 4., 4.]).into_tvalue();
        let gamma = tensor1(&[1f32, 2., 1., 3.]).into_tvalue();
        let beta = tensor1(&[0f32, 10., 0., 5.]).into_tvalue();
        let groups = NormGroups { count: 2, channels: 2, inner: 1 };
        let made = normalised::<f32>(&[data, gamma, beta], groups, 0.0, true, true).unwrap();
        assert_eq!(made[0].slice(0, 0, 6).unwrap(), tensor1(&[-1f32, 12., -1., 8., -1., 12.]));
    }

    #[test]
    fn an_even_neighbourhood_extends_further_back() {
        let data = tensor1(&[1f32, 10., 100.]);
        let made = local_response::<f32>(&data, 3, 1, (2, 1), [0.0, 2.0, 1.0]).unwrap();
        assert_eq!(made[0], tensor1(&[1f32, 10. / 101., 100. / 10100.]));
    }
}
