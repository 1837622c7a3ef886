//! A packing problem prepared for search: validated, with the conflicts of each buffer.

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
        let problem = Problem::of(buffers);
        for (index, buffer) in buffers.iter().enumerate() {
            let Some(offset) = buffer.fixed else { continue };
            for other in problem.conflicts(index) {
                let conflict = &buffers[other as usize];
                if conflict.fixed.is_some_and(|f| f < offset + buffer.size && offset < f + conflict.size) {
                    return Err(ArenaError::FixedOverlap(index, other as usize));
                }
            }
        }
        Ok(problem)
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
