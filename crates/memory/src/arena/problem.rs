//! A packing problem prepared for search: validated, with the conflicts of each buffer.

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
    /// Start of each buffer's slice of `conflicts`, and the end of the last.
    starts: Vec<usize>,
    conflicts: Vec<u32>,
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
        let (starts, conflicts) = conflicts(buffers);
        let problem = Problem { buffers, starts, conflicts };
        for (index, buffer) in buffers.iter().enumerate() {
            let Some(offset) = buffer.fixed else { continue };
            for &other in problem.conflicts(index) {
                let conflict = &buffers[other as usize];
                if conflict.fixed.is_some_and(|f| f < offset + buffer.size && offset < f + conflict.size) {
                    return Err(ArenaError::FixedOverlap(index, other as usize));
                }
            }
        }
        Ok(problem)
    }

    /// The buffers of nonzero size whose lifetimes overlap that of `buffer`.
    pub fn conflicts(&self, buffer: usize) -> &[u32] {
        &self.conflicts[self.starts[buffer]..self.starts[buffer + 1]]
    }

    /// The highest end of a buffer.
    pub fn height(&self, offsets: &[u64]) -> u64 {
        self.buffers.iter().zip(offsets).map(|(b, offset)| offset + b.size.0).max().unwrap_or(0)
    }
}

/// The conflicts of every buffer, by a sweep over the beginnings of lifetimes.
fn conflicts(buffers: &[Buffer]) -> (Vec<usize>, Vec<u32>) {
    let mut births: Vec<u32> = (0..buffers.len() as u32)
        .filter(|&i| buffers[i as usize].size.0 > 0 && buffers[i as usize].lower < buffers[i as usize].upper)
        .collect();
    births.sort_unstable_by_key(|&i| (buffers[i as usize].lower, i));
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    let mut live: Vec<u32> = Vec::new();
    for &born in &births {
        live.retain(|&i| buffers[i as usize].upper > buffers[born as usize].lower);
        pairs.extend(live.iter().map(|&other| (born, other)));
        live.push(born);
    }
    let mut starts = vec![0usize; buffers.len() + 1];
    for &(a, b) in &pairs {
        starts[a as usize + 1] += 1;
        starts[b as usize + 1] += 1;
    }
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut next = starts.clone();
    let mut conflicts = vec![0u32; pairs.len() * 2];
    for (a, b) in pairs {
        conflicts[next[a as usize]] = b;
        next[a as usize] += 1;
        conflicts[next[b as usize]] = a;
        next[b as usize] += 1;
    }
    (starts, conflicts)
}
