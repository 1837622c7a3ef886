//! Strides of tensors, and iteration over several tensors of one shape.

use tract_core::internal::*;

use crate::cuda::arguments::RANK;

/// The strides of a dense row-major tensor.
pub(super) fn dense_strides(shape: &[usize]) -> TVec<i64> {
    let mut strides: TVec<i64> = tvec![1; shape.len()];
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1] as i64;
    }
    strides
}

/// The strides of a dense tensor of shape `from` broadcast to `to`, which has the same rank.
pub(super) fn broadcast_strides(from: &[usize], to: &[usize]) -> TVec<i64> {
    let mut strides = dense_strides(from);
    strides
        .iter_mut()
        .zip(from.iter().zip(to))
        .filter(|(_, (from, to))| from != to)
        .for_each(|(stride, _)| *stride = 0);
    strides
}

/// The iteration over a shape with the strides of several tensors. Axes are merged where all strides allow it.
pub(super) struct Walk<const N: usize> {
    pub rank: u32,
    pub shape: [u32; RANK],
    pub strides: [[i32; RANK]; N],
}

impl<const N: usize> Walk<N> {
    /// # Errors
    /// If more than [`RANK`] axes remain.
    pub(super) fn new(shape: &[usize], strides: [&[i64]; N]) -> TractResult<Walk<N>> {
        let mut merged: Vec<(usize, [i64; N])> = Vec::new();
        for (axis, n) in shape.iter().enumerate().filter(|(_, n)| **n != 1) {
            let inner = strides.map(|strides| strides[axis]);
            match merged.last_mut() {
                Some((size, outer)) if outer.iter().zip(&inner).all(|(outer, inner)| *outer == inner * *n as i64) => {
                    *size *= n;
                    *outer = inner;
                }
                _ => merged.push((*n, inner)),
            }
        }
        ensure!(merged.len() <= RANK, "{} axes cannot be merged to {RANK}", merged.len());
        let mut walk = Walk { rank: merged.len() as u32, shape: [1; RANK], strides: [[0; RANK]; N] };
        for (axis, (size, strides)) in merged.into_iter().enumerate() {
            walk.shape[axis] = size as u32;
            for (tensor, stride) in strides.into_iter().enumerate() {
                walk.strides[tensor][axis] = i32::try_from(stride).context("a stride exceeds 2^31 elements")?;
            }
        }
        Ok(walk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_merged_if_contiguous_in_every_tensor() {
        let shape = [2, 3, 4, 5];
        let (dense, permuted) = (dense_strides(&shape), [20, 40, 5, 1]);
        let walk = Walk::new(&shape, [&dense[..], &permuted[..]]).unwrap();
        assert_eq!((walk.rank, &walk.shape[..3]), (3, &[2, 3, 20][..]));
        assert_eq!((&walk.strides[0][..3], &walk.strides[1][..3]), (&[60, 20, 1][..], &[20, 40, 1][..]));
        let whole = Walk::new(&shape, [&dense[..]]).unwrap();
        assert_eq!((whole.rank, whole.shape[0]), (1, 120));
        assert!(Walk::<1>::new(&[2; 9], [&[3; 9]]).is_err());
        assert_eq!(broadcast_strides(&[2, 1, 3], &[2, 4, 3])[..], [3, 0, 1]);
    }
}
