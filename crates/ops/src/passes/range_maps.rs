//! Maps from the range of a shard to ranges of other axes: composed, and compared.

use std::{ops::Range, sync::Arc};

use crate::split::RangeFn;

/// The range that `steps`, one after the other, map `range` to.
pub(super) fn applied(steps: &[RangeFn], range: &Range<u64>) -> Range<u64> {
    steps.iter().fold(range.clone(), |range, step| step(&range))
}

/// The composition of `steps`.
pub(super) fn chained(steps: Vec<RangeFn>) -> RangeFn {
    Arc::new(move |range| applied(&steps, range))
}

/// Ranges on the grain of an axis for which maps are compared: at both ends, in the middle, and the whole axis. Samples suffice,
/// as each shard is checked when it is made.
pub(super) fn samples(size: u64, grain: u64) -> Vec<Range<u64>> {
    let steps = size.div_ceil(grain.max(1));
    let mut cuts: Vec<u64> = [0, 1, steps / 2, steps.saturating_sub(1), steps].map(|at| (at * grain).min(size)).into();
    cuts.dedup();
    let pairs = cuts.iter().enumerate().flat_map(|(at, begin)| cuts[at + 1..].iter().map(|end| *begin..*end));
    pairs.filter(|range| !range.is_empty()).collect()
}
