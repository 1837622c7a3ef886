//! Which shard of an item a profile row describes.

use edgecut_graph::units::Bytes;

/// A shard of an item, by what determines its cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfiledShard {
    /// The axis that the item is split along, numbered as in the plan file.
    pub axis: usize,
    /// Fraction of the axis.
    pub fraction: f64,
    /// Bytes written by the slices and concatenations that were measured together with the shard.
    pub copied: Bytes,
}

/// Fractions that differ by less than this are equal.
const FRACTION_TOLERANCE: f64 = 1e-9;

impl ProfiledShard {
    /// Whether both shards have the same cost: same axis, same copies, and fractions equal up to rounding.
    pub fn same_cost(&self, other: &ProfiledShard) -> bool {
        let same_fraction = (self.fraction - other.fraction).abs() < FRACTION_TOLERANCE;
        self.axis == other.axis && same_fraction && self.copied == other.copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_compared_by_axis_fraction_and_copies() {
        let third = ProfiledShard { axis: 1, fraction: 1.0 / 3.0, copied: Bytes(8) };
        for (other, same) in [
            (ProfiledShard { fraction: 0.333_333_333_333, ..third }, true),
            (ProfiledShard { fraction: 0.3333, ..third }, false),
            (ProfiledShard { axis: 0, ..third }, false),
            (ProfiledShard { copied: Bytes::ZERO, ..third }, false),
        ] {
            assert_eq!(third.same_cost(&other), same, "{other:?}");
        }
    }
}
