//! First fit: each buffer in turn is placed at the lowest offset that is free of conflicts with those placed before.

use super::{peaks::Peaks, preference::Traits, problem::Problem};
use crate::{Buffer, bound};

/// The offset of a buffer that is not placed yet.
const UNPLACED: u64 = u64::MAX;

/// Places the buffers first fit in `order`, those with a fixed offset before all others.
pub(super) fn place(problem: &Problem<'_>, order: &[u32]) -> Vec<u64> {
    // No buffer ends above the highest address.
    within(problem, order, UNPLACED - 1).into_iter().map(Option::unwrap_or_default).collect()
}

/// The same with no buffer ending above `capacity`: `None` for those that do not fit.
pub(super) fn within(problem: &Problem<'_>, order: &[u32], capacity: u64) -> Vec<Option<u64>> {
    let mut offsets: Vec<u64> = problem.buffers.iter().map(|b| b.fixed.map_or(UNPLACED, |f| f.0)).collect();
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for &index in order {
        let index = index as usize;
        let buffer = &problem.buffers[index];
        if buffer.fixed.is_some() {
            continue;
        }
        taken.clear();
        let placed = problem.conflicts(index).map(|r| r as usize).filter(|&r| offsets[r] != UNPLACED);
        placed.for_each(|r| taken.push((offsets[r], offsets[r] + problem.buffers[r].size.0)));
        taken.sort_unstable();
        let mut at = 0;
        for &(start, end) in &taken {
            if start >= at + buffer.size.0 {
                break;
            }
            at = at.max(end.next_multiple_of(buffer.align));
        }
        if at.saturating_add(buffer.size.0) <= capacity {
            offsets[index] = at;
        }
    }
    let fits = |(offset, buffer): (u64, &Buffer)| {
        (offset != UNPLACED && offset.saturating_add(buffer.size.0) <= capacity).then_some(offset)
    };
    offsets.into_iter().zip(problem.buffers).map(fits).collect()
}

/// The traits of each buffer that the orders use.
pub(super) fn traits(problem: &Problem<'_>) -> Vec<Traits> {
    let loads = bound::loads(problem.buffers);
    let peaks = Peaks::new(&loads.iter().map(|load| load.bytes.0).collect::<Vec<_>>());
    let at = |step: u64| loads.partition_point(|load| load.from < step);
    let contention = |lower: u64, upper: u64| peaks.within(at(lower)..at(upper));
    let traits = problem.buffers.iter().map(|b| Traits {
        lower: b.lower,
        upper: b.upper,
        size: b.size.0,
        contention: contention(b.lower, b.upper),
    });
    traits.collect()
}
