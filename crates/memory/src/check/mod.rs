//! Independent checkers. They share no code with the searches.
//!
//! A packing is valid if every offset is aligned and equal to the fixed offset, if given; if no two buffers with
//! overlapping lifetimes share a byte; and if the stated height is the highest end of a buffer.
//!
//! | module | checks |
//! |---|---|
//! | here | packings, in one memory and in pools |
//! | [`contents`] | placements: every operand is intact when it is read |
//! | [`values`] | schedules: the results are those of the model |

pub mod contents;
pub mod values;

use std::collections::BTreeMap;

use crate::{Buffer, Packing, Pool, PoolPacking};
use edgecut_graph::units::Bytes;

/// What is wrong with a packing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackingViolation {
    #[error("{offsets} offsets were given for {buffers} buffers")]
    Count { buffers: usize, offsets: usize },
    #[error("the offset of buffer {0} is not a multiple of its alignment")]
    Misaligned(usize),
    #[error("buffer {0} is not at its fixed offset")]
    Moved(usize),
    #[error("buffers {0} and {1} overlap while both are live")]
    Overlap(usize, usize),
    #[error("the height is {} bytes, stated are {}", .real.0, .stated.0)]
    Height { stated: Bytes, real: Bytes },
    #[error("the lower bound of {} bytes exceeds the height of {} bytes", .bound.0, .height.0)]
    Bound { bound: Bytes, height: Bytes },
    #[error("buffer {0} is in a pool that does not exist")]
    NoPool(usize),
    #[error("pool `{pool}` has {} bytes, {} are used", .capacity.0, .height.0)]
    Overflow { pool: String, capacity: Bytes, height: Bytes },
}

/// Checks `packing` against `buffers`, in O(n log n): a sweep over the steps with the live buffers sorted by offset. As
/// long as these are disjoint, a new buffer can overlap only its two neighbours.
///
/// # Errors
/// With the first violation.
pub fn packing(buffers: &[Buffer], packing: &Packing) -> Result<(), PackingViolation> {
    if buffers.len() != packing.offsets.len() {
        return Err(PackingViolation::Count { buffers: buffers.len(), offsets: packing.offsets.len() });
    }
    let mut height = 0u128;
    let mut events = Vec::new();
    for (index, (buffer, offset)) in buffers.iter().zip(&packing.offsets).enumerate() {
        if offset.0 % buffer.align.max(1) != 0 {
            return Err(PackingViolation::Misaligned(index));
        }
        if buffer.fixed.is_some_and(|fixed| fixed != *offset) {
            return Err(PackingViolation::Moved(index));
        }
        height = height.max(u128::from(offset.0) + u128::from(buffer.size.0));
        if buffer.lower < buffer.upper && buffer.size.0 > 0 {
            events.push((buffer.upper, 0, index));
            events.push((buffer.lower, 1, index));
        }
    }
    events.sort_unstable();
    let end = |index: usize| u128::from(packing.offsets[index].0) + u128::from(buffers[index].size.0);
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, begins, index) in events {
        let offset = packing.offsets[index].0;
        if begins == 0 {
            live.remove(&offset);
            continue;
        }
        if let Some((_, &below)) = live.range(..=offset).next_back()
            && end(below) > u128::from(offset)
        {
            return Err(PackingViolation::Overlap(below.min(index), below.max(index)));
        }
        if let Some((&start, &above)) = live.range(offset..).next()
            && u128::from(start) < end(index)
        {
            return Err(PackingViolation::Overlap(above.min(index), above.max(index)));
        }
        live.insert(offset, index);
    }
    if height != u128::from(packing.height.0) {
        let real = Bytes(u64::try_from(height).unwrap_or(u64::MAX));
        return Err(PackingViolation::Height { stated: packing.height, real });
    }
    if packing.bound > packing.height {
        return Err(PackingViolation::Bound { bound: packing.bound, height: packing.height });
    }
    Ok(())
}

/// Checks the assignment of buffers to `pools`, and the packing of each pool within its capacity.
///
/// # Errors
/// With the first violation.
pub fn pools(buffers: &[Buffer], pools: &[Pool], pooled: &PoolPacking) -> Result<(), PackingViolation> {
    let count = pooled.pools.len();
    if count != buffers.len() || pooled.packings.len() != pools.len() {
        return Err(PackingViolation::Count { buffers: buffers.len(), offsets: count });
    }
    if let Some(index) = pooled.pools.iter().position(|&pool| pool >= pools.len()) {
        return Err(PackingViolation::NoPool(index));
    }
    for (number, (pool, held)) in pools.iter().zip(&pooled.packings).enumerate() {
        let inside: Vec<Buffer> =
            buffers.iter().zip(&pooled.pools).filter(|(_, of)| **of == number).map(|(buffer, _)| *buffer).collect();
        packing(&inside, held)?;
        if let Some(capacity) = pool.capacity.filter(|capacity| held.height > *capacity) {
            return Err(PackingViolation::Overflow { pool: pool.name.clone(), capacity, height: held.height });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_found() {
        let buffers = [
            Buffer::new(0, 4, Bytes(8)),
            Buffer::new(3, 6, Bytes(8)).align(4),
            Buffer::new(4, 5, Bytes(8)).fixed(Bytes(8)),
        ];
        let at = |offsets: [u64; 3], height| Packing {
            offsets: offsets.map(Bytes).to_vec(),
            height: Bytes(height),
            bound: Bytes(16),
        };
        let cases = [
            (at([8, 0, 8], 16), Ok(())),
            (at([8, 4, 8], 16), Err(PackingViolation::Overlap(0, 1))),
            (at([0, 9, 8], 17), Err(PackingViolation::Misaligned(1))),
            (at([8, 0, 0], 16), Err(PackingViolation::Moved(2))),
            (at([8, 0, 8], 17), Err(PackingViolation::Height { stated: Bytes(17), real: Bytes(16) })),
            (at([0, 8, 8], 16), Err(PackingViolation::Overlap(1, 2))),
        ];
        for (candidate, want) in cases {
            assert_eq!(packing(&buffers, &candidate), want, "{candidate:?}");
        }
    }
}
