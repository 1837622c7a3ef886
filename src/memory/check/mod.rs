//! Judges results from the problem alone. Shares no code with what made them.
//!
//! A packing is right if every buffer starts at a multiple of its alignment and where it was told to, no two
//! buffers that live at one step share a byte, and the stated height is where the highest buffer ends.

pub mod contents;
pub mod operators;
pub mod records;
pub mod values;

use std::collections::BTreeMap;

use super::{
    Buffer, Packing,
    arena::pools::{Pool, Pooled},
};

/// What is wrong with a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("{offsets} offsets were given for {buffers} buffers")]
    Count { buffers: usize, offsets: usize },
    #[error("buffer {0} does not start at a multiple of its alignment")]
    Misaligned(usize),
    #[error("buffer {0} does not lie at its fixed offset")]
    Moved(usize),
    #[error("buffers {0} and {1} share bytes while both live")]
    Overlap(usize, usize),
    #[error("the height is {real} bytes, {stated} were stated")]
    Height { stated: u64, real: u64 },
    #[error("the bound of {bound} bytes is above the height of {height}")]
    Bound { bound: u64, height: u64 },
    #[error("buffer {0} lies in a pool that there is not")]
    NoPool(usize),
    #[error("pool `{pool}` has {capacity} bytes, {height} are used")]
    Overflow { pool: String, capacity: u64, height: u64 },
}

/// Checks `packing` against `buffers`, in time n log n.
///
/// Sweeps over the steps with the live buffers kept by offset: as long as those are disjoint, a newborn can
/// only touch its two neighbours.
///
/// # Errors
/// With the first flaw that is found.
pub fn packing(buffers: &[Buffer], packing: &Packing) -> Result<(), Flaw> {
    if buffers.len() != packing.offsets.len() {
        return Err(Flaw::Count { buffers: buffers.len(), offsets: packing.offsets.len() });
    }
    let mut height = 0u128;
    let mut events = Vec::new();
    for (index, (buffer, offset)) in buffers.iter().zip(&packing.offsets).enumerate() {
        if offset.0 % buffer.align.max(1) != 0 {
            return Err(Flaw::Misaligned(index));
        }
        if buffer.fixed.is_some_and(|fixed| fixed != *offset) {
            return Err(Flaw::Moved(index));
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
    for (_, birth, index) in events {
        let offset = packing.offsets[index].0;
        if birth == 0 {
            live.remove(&offset);
            continue;
        }
        if let Some((_, &below)) = live.range(..=offset).next_back()
            && end(below) > u128::from(offset)
        {
            return Err(Flaw::Overlap(below.min(index), below.max(index)));
        }
        if let Some((&start, &above)) = live.range(offset..).next()
            && u128::from(start) < end(index)
        {
            return Err(Flaw::Overlap(above.min(index), above.max(index)));
        }
        live.insert(offset, index);
    }
    if height != u128::from(packing.height.0) {
        let real = u64::try_from(height).unwrap_or(u64::MAX);
        return Err(Flaw::Height { stated: packing.height.0, real });
    }
    if packing.bound > packing.height {
        return Err(Flaw::Bound { bound: packing.bound.0, height: packing.height.0 });
    }
    Ok(())
}

/// Checks that every buffer lies in one of `pools`, and what lies in each as [`packing`] does, within its capacity.
///
/// # Errors
/// With the first flaw that is found.
pub fn pools(buffers: &[Buffer], pools: &[Pool], pooled: &Pooled) -> Result<(), Flaw> {
    let count = pooled.pools.len();
    if count != buffers.len() || pooled.packings.len() != pools.len() {
        return Err(Flaw::Count { buffers: buffers.len(), offsets: count });
    }
    if let Some(index) = pooled.pools.iter().position(|&pool| pool >= pools.len()) {
        return Err(Flaw::NoPool(index));
    }
    for (number, (pool, held)) in pools.iter().zip(&pooled.packings).enumerate() {
        let inside: Vec<Buffer> =
            buffers.iter().zip(&pooled.pools).filter(|(_, of)| **of == number).map(|(buffer, _)| *buffer).collect();
        packing(&inside, held)?;
        if let Some(capacity) = pool.capacity.filter(|capacity| held.height > *capacity) {
            let (capacity, height) = (capacity.0, held.height.0);
            return Err(Flaw::Overflow { pool: pool.name.clone(), capacity, height });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn flaws_are_found() {
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
            (at([8, 4, 8], 16), Err(Flaw::Overlap(0, 1))),
            (at([0, 9, 8], 17), Err(Flaw::Misaligned(1))),
            (at([8, 0, 0], 16), Err(Flaw::Moved(2))),
            (at([8, 0, 8], 17), Err(Flaw::Height { stated: 17, real: 16 })),
            (at([0, 8, 8], 16), Err(Flaw::Overlap(1, 2))),
        ];
        for (candidate, want) in cases {
            assert_eq!(packing(&buffers, &candidate), want, "{candidate:?}");
        }
    }
}
