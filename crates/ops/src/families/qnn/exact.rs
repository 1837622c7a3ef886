//! Exact products of 8-bit integers in single precision: short sums have no rounding errors, and longer ones are
//! divided into such blocks. Matrix kernels for floats are several times as fast as those for wider integers.

use tract_core::internal::*;
use tract_core::ops::{array::Slice, math};

use crate::kernel::{Wiring, indexing::integers};

/// Differences of 8-bit integers and their zero points have 8 bits and a sign, products 16, and single precision holds
/// integers of 24 bits.
const TERMS: usize = 1 << (24 - 16);

/// More blocks take longer than one product of integers, and each is several operators for tract to optimise.
const MOST_BLOCKS: usize = 64;

/// The sum over blocks of `product`, as int32: `operands` are sliced into blocks along `axes`, and each index of these
/// axes contributes `terms` terms to the sum.
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
    let block = (TERMS / terms.max(1)).max(1);
    let mut sum: Option<OutletId> = None;
    for start in (0..length.max(1)).step_by(block) {
        let end = length.min(start + block);
        let slice = |wiring: &mut Wiring<'_>, at: usize| match block >= length {
            true => Ok(operands[at]),
            false => wiring.one(Slice::new(axes[at], start, end), &[operands[at]]),
        };
        let slices = [slice(wiring, 0)?, slice(wiring, 1)?];
        let part = product(wiring, slices)?;
        let part = wiring.cast(part, DatumType::I32)?;
        sum = Some(match sum {
            Some(before) => wiring.one(math::add(), &[before, part])?,
            None => part,
        });
    }
    sum.context("a sum of no blocks")
}

/// Whether few enough blocks, in each of which single precision holds all sums, make up `length` indices of `terms` terms each.
pub(super) fn fits(length: usize, terms: usize) -> bool {
    terms <= TERMS && length <= MOST_BLOCKS * (TERMS / terms.max(1)).max(1)
}

/// `tensor` minus its zero point, as `dtype`; `shape` is that in which several zero points broadcast.
pub(super) fn less_zero_point(
    wiring: &mut Wiring<'_>,
    tensor: OutletId,
    zero_point: Option<OutletId>,
    shape: &[usize],
    dtype: DatumType,
) -> TractResult<OutletId> {
    let wide = wiring.cast(tensor, dtype)?;
    let is_zero = |zero: OutletId| wiring.known(zero).is_some_and(|known| known.is_all_zero().unwrap_or(false));
    let Some(zero_point) = zero_point.filter(|zero| !is_zero(*zero)) else { return Ok(wide) };
    let zero_point = wiring.cast(zero_point, dtype)?;
    let zero_point = wiring.reshape(zero_point, shape)?;
    wiring.one(math::sub(), &[wide, zero_point])
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
    fn long_sums_are_not_divided_into_many_blocks() {
        assert!(fits(768, 1) && fits(64 * 256, 1) && !fits(64 * 256 + 1, 1));
        assert!(fits(1, 256) && !fits(1, 257) && fits(64, 256) && !fits(65, 256));
    }
}
