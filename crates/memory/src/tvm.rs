//! TVM's default arena, for comparison: `greedy_by_size` of the unified static memory planner
//! (`src/tir/usmp/algo/greedy.cc`, TVM v0.14).

use crate::{Buffer, Packing, bound};
use edgecut_graph::units::Bytes;

/// Places the largest buffers first, ties by the number of conflicts, each above the highest end of the buffers that it
/// conflicts with. Does not fill gaps and ignores fixed offsets.
pub fn greedy_by_size(buffers: &[Buffer]) -> Packing {
    let conflicts: Vec<usize> = buffers.iter().map(|a| buffers.iter().filter(|b| a.overlaps(b)).count()).collect();
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse((buffers[index].size, conflicts[index])));
    let mut offsets: Vec<Option<u64>> = vec![None; buffers.len()];
    let mut height = 0;
    for index in order {
        let buffer = &buffers[index];
        let end = |(other, offset): (&Buffer, &Option<u64>)| {
            let end = (*offset)?.saturating_add(other.size.0);
            buffer.overlaps(other).then(|| end.next_multiple_of(buffer.align.max(1)))
        };
        let offset = buffers.iter().zip(&offsets).filter_map(end).max().unwrap_or(0);
        offsets[index] = Some(offset);
        height = height.max(offset + buffer.size.0);
    }
    let bound = bound::peak(buffers).bytes;
    let offsets = offsets.into_iter().map(|offset| Bytes(offset.unwrap_or(0))).collect();
    Packing { offsets, height: Bytes(height), bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn buffers_are_placed_above_all_conflicts() {
        let buffers = [
            Buffer::new(0, 2, Bytes(10)),
            Buffer::new(1, 3, Bytes(8)),
            Buffer::new(2, 4, Bytes(6)),
            Buffer::new(0, 1, Bytes(4)),
        ];
        let packing = greedy_by_size(&buffers);
        let offsets: Vec<u64> = packing.offsets.iter().map(|offset| offset.0).collect();
        // The third buffer would fit below the second.
        assert_eq!(offsets, [0, 10, 18, 10]);
        assert_eq!((packing.height, packing.bound), (Bytes(24), Bytes(18)));
        check::packing(&buffers, &packing).unwrap();
    }
}
