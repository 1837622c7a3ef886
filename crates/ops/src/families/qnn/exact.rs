//! Exact products of 8-bit integers in single precision: short sums have no rounding errors, and longer ones are
//! divided into such blocks. Matrix kernels for floats are several times as fast as those for wider integers.

use tract_core::internal::*;
use tract_core::ops::{array::Slice, math};

use crate::kernel::Wiring;

/// Differences of 8-bit integers and their zero points have 8 bits and a sign, products 16, and single precision holds
/// integers of 24 bits.
const TERMS: usize = 1 << (24 - 16);

/// The sum over blocks of `product`, as int32: `operands` are sliced into blocks along `axes`, and each index of these
/// axes contributes `terms` terms to the sum.
///
/// # Errors
/// If one index has too many terms; see [`fits`].
pub(super) fn sum_of_blocks(
    wiring: &mut Wiring<'_>,
    operands: [OutletId; 2],
    axes: [usize; 2],
    terms: usize,
    mut product: impl FnMut(&mut Wiring<'_>, [OutletId; 2]) -> TractResult<OutletId>,
) -> TractResult<OutletId> {
    ensure!(fits(terms), "{terms} terms are too many for single precision");
    let length = *wiring.concrete(operands[0])?.get(axes[0]).context("an axis out of range")?;
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

/// Whether single precision holds the sum of `terms` products.
pub(super) fn fits(terms: usize) -> bool {
    terms <= TERMS
}

/// `tensor` minus its zero point, in single precision; `shape` is that in which several zero points broadcast.
pub(super) fn less_zero_point(
    wiring: &mut Wiring<'_>,
    tensor: OutletId,
    zero_point: Option<OutletId>,
    shape: &[usize],
) -> TractResult<OutletId> {
    let real = wiring.cast(tensor, DatumType::F32)?;
    let is_zero = |zero: OutletId| wiring.known(zero).is_some_and(|known| known.is_all_zero().unwrap_or(false));
    let Some(zero_point) = zero_point.filter(|zero| !is_zero(*zero)) else { return Ok(real) };
    let zero_point = wiring.cast(zero_point, DatumType::F32)?;
    let zero_point = wiring.reshape(zero_point, shape)?;
    wiring.one(math::sub(), &[real, zero_point])
}
