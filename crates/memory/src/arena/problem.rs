//! A packing problem prepared for search: validated, with the conflicts of each buffer.

use std::collections::BTreeMap;

use super::conflicts::{Conflicts, spans};
use crate::Buffer;
use edgecut_graph::units::Bytes;

/// Why buffers cannot be packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    #[error("buffer {0} has alignment 0: expected 1 or more")]
    ZeroAlignment(usize),
    #[error("the lifetime of buffer {index} is {lower} to {upper}: expected an end after the beginning")]
    Backwards { index: usize, lower: u64, upper: u64 },
    #[error("the fixed offset of buffer {0} is not a multiple of its alignment")]
    MisalignedFixed(usize),
    #[error("buffers {0} and {1} overlap at their fixed offsets")]
    FixedOverlap(usize, usize),
    #[error("the buffers' sizes add up to more than 2^62 bytes")]
    TooLarge,
}

/// Buffers and their conflicts: buffers with overlapping lifetimes.
pub(super) struct Problem<'a> {
    pub buffers: &'a [Buffer],
    /// The buffers of nonzero size and lifetime, in order of their beginning.
    born: Vec<u32>,
    /// The position of each buffer in `born`.
    positions: Vec<Option<u32>>,
    conflicts: Conflicts,
}

impl<'a> Problem<'a> {
    pub fn new(buffers: &'a [Buffer]) -> Result<Problem<'a>, ArenaError> {
        const MAX_SUM: u128 = 1 << 62;
        let mut sum = 0u128;
        for (index, buffer) in buffers.iter().enumerate() {
            if buffer.align == 0 {
                return Err(ArenaError::ZeroAlignment(index));
            }
            if buffer.upper < buffer.lower {
                return Err(ArenaError::Backwards { index, lower: buffer.lower, upper: buffer.upper });
            }
            let fixed = buffer.fixed.unwrap_or(Bytes::ZERO).0;
            if fixed % buffer.align != 0 {
                return Err(ArenaError::MisalignedFixed(index));
            }
            sum += u128::from(buffer.size.0) + u128::from(buffer.align) + u128::from(fixed);
        }
        if sum > MAX_SUM {
            return Err(ArenaError::TooLarge);
        }
        match fixed_overlap(buffers) {
            Some((one, other)) => Err(ArenaError::FixedOverlap(one, other)),
            None => Ok(Problem::of(buffers)),
        }
    }

    fn of(buffers: &'a [Buffer]) -> Problem<'a> {
        let of = |index: u32| &buffers[index as usize];
        let mut born: Vec<u32> = (0..buffers.len() as u32).collect();
        born.retain(|&index| of(index).size.0 > 0 && of(index).lower < of(index).upper);
        born.sort_unstable_by_key(|&index| (of(index).lower, index));
        let mut positions = vec![None; buffers.len()];
        (0..).zip(&born).for_each(|(position, &index)| positions[index as usize] = Some(position));
        let (count, spans) = spans(born.iter().map(|&index| (of(index).lower, of(index).upper)));
        Problem { buffers, positions, conflicts: Conflicts::new(&spans, count), born }
    }

    /// The buffers of nonzero size and lifetime, in order of their beginning.
    pub fn born(&self) -> &[u32] {
        &self.born
    }

    /// The conflicts of `born`, which are numbered by their position there.
    pub fn timeline(&self) -> &Conflicts {
        &self.conflicts
    }

    /// The buffer at a position in `born`.
    pub fn at(&self, position: usize) -> &Buffer {
        &self.buffers[self.born[position] as usize]
    }

    /// The buffers of nonzero size whose lifetimes overlap that of `buffer`, in order of their beginning.
    pub fn conflicts(&self, buffer: usize) -> impl Iterator<Item = u32> + '_ {
        let positions = self.positions[buffer].into_iter().flat_map(|position| self.conflicts.of(position));
        positions.map(|position| self.born[position as usize])
    }

    /// The highest end of a buffer.
    pub fn height(&self, offsets: &[u64]) -> u64 {
        self.buffers.iter().zip(offsets).map(|(b, offset)| offset + b.size.0).max().unwrap_or(0)
    }
}

/// Two buffers that overlap at their fixed offsets, if there are any: a sweep over time with the live ones by offset.
fn fixed_overlap(buffers: &[Buffer]) -> Option<(usize, usize)> {
    let mut events: Vec<(u64, bool, usize, u64)> = Vec::new();
    for (index, buffer) in buffers.iter().enumerate() {
        if let Some(offset) = buffer.fixed.filter(|_| buffer.size.0 > 0 && buffer.lower < buffer.upper) {
            events.push((buffer.lower, true, index, offset.0));
            events.push((buffer.upper, false, index, offset.0));
        }
    }
    events.sort_unstable();
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, begins, index, offset) in events {
        if !begins {
            live.remove(&offset);
            continue;
        }
        let end = offset + buffers[index].size.0;
        if let Some((start, &other)) = live.range(..end).next_back()
            && start + buffers[other].size.0 > offset
        {
            return Some((index.min(other), index.max(other)));
        }
        live.insert(offset, index);
    }
    None
}
