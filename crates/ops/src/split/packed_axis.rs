//! Packed axes: several tensors one after the other, such as the Q, K and V of one projection.

use std::{fmt, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

/// Maximum number of tensors on an axis: plan files are not trusted, and readers of a packed tensor concatenate them.
const MAX_TENSORS: usize = 16;

/// An axis that packs several tensors, such as the Q, K and V of one projection. It consists of units, such as KV heads; each tensor has
/// a fixed number of positions per unit.
///
/// Ranges of such an axis are in *interleaved order*: unit by unit, as Megatron-LM stores QKV. A range of units is then contiguous,
/// although it is one range of each tensor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct PackedAxis(Arc<[u64]>);

/// Widths that are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid packed axis: expected the number of positions of each tensor per unit, at most {max}, none of them 0",
    max = MAX_TENSORS
)]
pub struct PackedAxisError(Vec<u64>);

/// The axis along which a tensor is sharded; if it is packed, ranges are in interleaved order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardedAxis {
    pub axis: usize,
    pub packed: Option<PackedAxis>,
}

impl From<usize> for ShardedAxis {
    fn from(axis: usize) -> ShardedAxis {
        ShardedAxis { axis, packed: None }
    }
}

impl fmt::Display for PackedAxis {
    /// The positions of each tensor per unit: `2+1+1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = self.0.iter();
        widths.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        widths.try_for_each(|width| write!(f, "+{width}"))
    }
}

impl TryFrom<Vec<u64>> for PackedAxis {
    type Error = PackedAxisError;
    fn try_from(widths: Vec<u64>) -> Result<PackedAxis, PackedAxisError> {
        PackedAxis::new(&widths).ok_or(PackedAxisError(widths))
    }
}

impl From<PackedAxis> for Vec<u64> {
    fn from(packed: PackedAxis) -> Vec<u64> {
        packed.0.to_vec()
    }
}

impl PackedAxis {
    /// Tensors that have these numbers of positions per unit. `None` if one is 0, their sum overflows, or there are none or more than
    /// [`MAX_TENSORS`].
    pub fn new(widths: &[u64]) -> Option<PackedAxis> {
        let is_valid = !widths.is_empty() && widths.len() <= MAX_TENSORS && !widths.contains(&0);
        let sum = widths.iter().try_fold(0u64, |sum, width| sum.checked_add(*width));
        (is_valid && sum.is_some()).then(|| PackedAxis(widths.into()))
    }

    /// The number of positions of a unit.
    pub fn unit(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The range of each tensor, on an axis of `size` positions, that `begin` to `end` in interleaved order stand for.
    pub fn ranges(&self, size: u64, begin: u64, end: u64) -> Vec<Range<u64>> {
        let (units, first, last) = (size / self.unit(), begin / self.unit(), end.div_ceil(self.unit()));
        let mut offset = 0;
        let part = |width: &u64| {
            let range = offset + first * width..offset + last * width;
            offset += units * width;
            range
        };
        self.0.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_ranges_of_all_parts() {
        // Three units of two queries, a key and a value.
        let packed = PackedAxis::new(&[2, 1, 1]).unwrap();
        assert_eq!((packed.unit(), packed.to_string().as_str()), (4, "2+1+1"));
        for (begin, end, expected) in
            [(0, 12, [0..6, 6..9, 9..12]), (0, 4, [0..2, 6..7, 9..10]), (4, 12, [2..6, 7..9, 10..12])]
        {
            assert_eq!(packed.ranges(12, begin, end), expected, "{begin}..{end}");
        }
        for widths in [&[][..], &[2, 0], &[u64::MAX, 1], &[1; 17]] {
            assert_eq!(PackedAxis::new(widths), None, "{widths:?}");
        }
    }
}
