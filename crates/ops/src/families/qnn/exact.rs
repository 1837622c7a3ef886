//! Exact products of 8-bit integers in single precision: sums that fit its 24-bit significand have no rounding errors, and
//! longer ones are divided into blocks that do. Matrix kernels for floats are several times as fast as those for wider
//! integers.

use tract_core::internal::*;
use tract_core::ops::{array::Slice, cast::cast, math};

use crate::kernel::{Wiring, indexing::integers, pointwise::exact_integers};

/// The largest magnitude of a difference of an 8-bit integer and its zero point.
const MAX_OPERAND: u32 = 255;

/// Single precision represents all integers up to this one.
const MAX_EXACT: u32 = 1 << 24;

/// Terms of a sum that is exact whatever the weights are.
const TERMS: usize = (MAX_EXACT / (MAX_OPERAND * MAX_OPERAND)) as usize;

/// More blocks take longer than one product of integers, and each is several operators for tract to optimise.
const MAX_BLOCKS: usize = 64;

/// The sum over blocks of `product`, as int32: `operands`, data and weights, are sliced into blocks along `axes`, and each
/// index of these axes contributes `terms` terms to the sum. If the weights are known, blocks are as long as they allow.
///
/// # Errors
/// If there are too many terms; see [`fits`].
pub(super) fn sum_of_blocks(
    wiring: &mut Wiring<'_>,
    operands: [OutletId; 2],
    axes: [usize; 2],
    terms: usize,
    mut product: impl FnMut(&mut Wiring<'_>, [OutletId; 2]) -> TractResult<OutletId>,
) -> TractResult<OutletId> {
    let length = *wiring.concrete(operands[0])?.get(axes[0]).context("an axis out of range")?;
    ensure!(fits(length, terms), "{terms} terms for each of {length} indices are too many for single precision");
    let mut sum: Option<OutletId> = None;
    let mut start = 0;
    for end in block_ends(wiring.known(operands[1]).as_deref(), axes[1], length, terms)? {
        let slice = |wiring: &mut Wiring<'_>, at: usize| match (start, end) == (0, length) {
            true => Ok(operands[at]),
            false => wiring.one(Slice::new(axes[at], start, end), &[operands[at]]),
        };
        let slices = [slice(wiring, 0)?, slice(wiring, 1)?];
        let part = product(wiring, slices)?;
        let part = wiring.one(exact_integers(), &[part])?;
        sum = Some(match sum {
            Some(before) => wiring.one(math::add(), &[before, part])?,
            None => part,
        });
        start = end;
    }
    sum.context("a sum of no blocks")
}

/// The ends of the blocks that `length` indices are divided into. `weights`, differences of 8-bit integers, have these indices
/// along `axis`; with several `terms` an index, the sum is also over all axes after it.
fn block_ends(weights: Option<&Tensor>, axis: usize, length: usize, terms: usize) -> TractResult<Vec<usize>> {
    let Some(weights) = weights.filter(|weights| weights.datum_type() == DatumType::F32) else {
        let block = (TERMS / terms.max(1)).max(1);
        return Ok((block..length).step_by(block).chain([length]).collect());
    };
    let shape = weights.shape();
    ensure!(shape.get(axis) == Some(&length), "weights of shape {shape:?} have no axis {axis} of length {length}");
    let behind: usize = shape[axis + 1..].iter().product();
    let before: usize = shape[..axis].iter().product();
    let sums_behind = if terms > 1 { behind } else { 1 };
    let plain = weights.try_as_plain_ram()?;
    let plain = plain.as_slice::<f32>()?;
    let mut ends = Vec::new();
    // By result: the sum of absolute weights since the last end.
    let mut sums = vec![0u32; before * behind / sums_behind.max(1)];
    let mut with_next = sums.clone();
    for index in 0..length {
        let rows = (0..before).map(|lead| &plain[(lead * length + index) * behind..][..behind]);
        let added = rows.flat_map(|row| row.chunks(sums_behind.max(1)));
        let added = added.map(|terms| terms.iter().map(|weight| weight.abs() as u32).sum::<u32>());
        for ((next, sum), added) in with_next.iter_mut().zip(&sums).zip(added) {
            *next = sum + added;
        }
        if with_next.iter().any(|sum| *sum > MAX_EXACT / MAX_OPERAND) {
            ends.push(index);
            with_next.iter_mut().zip(&sums).for_each(|(next, sum)| *next -= sum);
        }
        std::mem::swap(&mut sums, &mut with_next);
    }
    ends.retain(|end| *end > 0);
    ends.push(length);
    Ok(ends)
}

/// Whether few enough blocks, in each of which single precision holds all sums, make up `length` indices of `terms` terms each.
pub(super) fn fits(length: usize, terms: usize) -> bool {
    terms <= TERMS && length <= MAX_BLOCKS * (TERMS / terms.max(1)).max(1)
}

/// `tensor` minus its zero point, as `dtype`; `shape` is that in which several zero points broadcast.
pub(super) fn less_zero_point(
    wiring: &mut Wiring<'_>,
    tensor: OutletId,
    zero_point: Option<OutletId>,
    shape: &[usize],
    dtype: DatumType,
) -> TractResult<OutletId> {
    let wide = wiring.folded(cast(dtype), &[tensor])?;
    let is_zero = |zero: OutletId| wiring.known(zero).is_some_and(|known| known.is_all_zero().unwrap_or(false));
    let Some(zero_point) = zero_point.filter(|zero| !is_zero(*zero)) else { return Ok(wide) };
    let zero_point = wiring.cast(zero_point, dtype)?;
    let zero_point = wiring.reshape(zero_point, shape)?;
    wiring.folded(math::sub(), &[wide, zero_point])
}

/// Whether a zero point is in the range of the 8-bit type of the elements that it belongs to: by its type, or by its content.
pub(super) fn is_in_range(wiring: &Wiring<'_>, zero_point: OutletId, of: DatumType) -> TractResult<bool> {
    if wiring.fact(zero_point)?.datum_type == of {
        return Ok(true);
    }
    let range = if of.is_signed() { -128..=127 } else { 0..=255 };
    let known = wiring.known(zero_point).map(|known| integers(&known)).transpose()?;
    Ok(known.is_some_and(|known| known.iter().all(|zero| range.contains(zero))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_before_sums_exceed_24_bits() {
        let ends = |weights: &Tensor, axis: usize, terms: usize| {
            block_ends(Some(weights), axis, weights.shape()[axis], terms).unwrap()
        };
        let filled =
            |shape: &[usize], weight: f32| Tensor::from_shape(shape, &vec![weight; shape.iter().product()]).unwrap();
        // The sum of absolute weights may be at most 2^24 / 255 = 65 793.
        assert_eq!(ends(&filled(&[2, 600], -255.0), 1, 1), [258, 516, 600]);
        assert_eq!(ends(&filled(&[600, 2], 255.0), 0, 1), [258, 516, 600]);
        assert_eq!(ends(&filled(&[3, 4000], 16.0), 1, 1), [4000]);
        assert_eq!(ends(&filled(&[2, 100, 3, 3], 255.0), 1, 9), [28, 56, 84, 100]);
        assert_eq!(block_ends(None, 1, 600, 1).unwrap(), [258, 516, 600]);
        // A block ends for all results as soon as one result requires it.
        let mut weights = vec![1.0; 600];
        weights[..300].fill(255.0);
        assert_eq!(ends(&Tensor::from_shape(&[2, 300], &weights).unwrap(), 1, 1), [258, 300]);
        assert_eq!(block_ends(None, 0, 0, 1).unwrap(), [0]);
    }

    #[test]
    fn long_sums_are_not_divided_into_many_blocks() {
        assert!(fits(768, 1) && fits(64 * 258, 1) && !fits(64 * 258 + 1, 1));
        assert!(fits(1, 258) && !fits(1, 259) && fits(64, 258) && !fits(65, 258));
    }
}
