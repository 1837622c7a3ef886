//! Axes that hold several tensors one after the other, such as the queries, keys and values of attention that one product projects.

use std::{fmt, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

/// The parts that an axis holds one after the other, and how they belong together: the axis has a number of units, such as the heads
/// of keys, and each part a number of positions for each unit.
///
/// Shards count the positions of such an axis by unit: those of the first unit in all parts come first. A range of units is then one
/// range of positions, although it is a range in each part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct Packing(Arc<[u64]>);

/// Widths that are no packing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no packing: expected the positions of each part in a unit, not all 0")]
pub struct PackingError(Vec<u64>);

/// An axis of a tensor, and how its positions are counted where it holds several parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Side {
    pub axis: usize,
    pub packing: Option<Packing>,
}

impl From<usize> for Side {
    fn from(axis: usize) -> Side {
        Side { axis, packing: None }
    }
}

impl fmt::Display for Packing {
    /// The positions of each part in a unit: `2+1+1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = self.0.iter();
        widths.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        widths.try_for_each(|width| write!(f, "+{width}"))
    }
}

impl TryFrom<Vec<u64>> for Packing {
    type Error = PackingError;
    fn try_from(widths: Vec<u64>) -> Result<Packing, PackingError> {
        Packing::new(&widths).ok_or(PackingError(widths))
    }
}

impl From<Packing> for Vec<u64> {
    fn from(packing: Packing) -> Vec<u64> {
        packing.0.to_vec()
    }
}

impl Packing {
    /// The packing of parts that have these numbers of positions for each unit; `None` if a unit would have none.
    pub fn new(widths: &[u64]) -> Option<Packing> {
        let sum = widths.iter().try_fold(0u64, |sum, width| sum.checked_add(*width))?;
        (sum > 0).then(|| Packing(widths.into()))
    }

    /// The positions of a unit.
    pub fn unit(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The ranges of positions, as the axis of `size` positions has them, that are the range `begin` to `end` counted by unit: one
    /// for each part.
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
        let packing = Packing::new(&[2, 1, 1]).unwrap();
        assert_eq!((packing.unit(), packing.to_string().as_str()), (4, "2+1+1"));
        for (begin, end, expected) in
            [(0, 12, [0..6, 6..9, 9..12]), (0, 4, [0..2, 6..7, 9..10]), (4, 12, [2..6, 7..9, 10..12])]
        {
            assert_eq!(packing.ranges(12, begin, end), expected, "{begin}..{end}");
        }
        assert_eq!(Packing::new(&[0, 0]), None);
    }
}
