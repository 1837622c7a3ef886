//! A packing problem made ready for searching: checked, and with each buffer's rivals known.

use crate::{memory::Buffer, units::Bytes};

/// Why buffers cannot be packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    #[error("buffer {0} has alignment 0: expected 1 or more")]
    ZeroAlignment(usize),
    #[error("buffer {index} lives from {lower} to {upper}: expected an end after the beginning")]
    Backwards { index: usize, lower: u64, upper: u64 },
    #[error("buffer {0} must lie at an offset that is no multiple of its alignment")]
    MisalignedFixed(usize),
    #[error("buffers {0} and {1} must lie at offsets at which they overlap")]
    FixedOverlap(usize, usize),
    #[error("the buffers' sizes add up to more than 2^62 bytes")]
    TooLarge,
}

/// Buffers with, for each, the others that are live at one step with it: its rivals for bytes.
pub(super) struct Problem<'a> {
    pub buffers: &'a [Buffer],
    /// Start of each buffer's list in `rivals`, and the end of the last.
    starts: Vec<usize>,
    rivals: Vec<u32>,
}

impl<'a> Problem<'a> {
    pub fn new(buffers: &'a [Buffer]) -> Result<Problem<'a>, ArenaError> {
        const MOST: u128 = 1 << 62;
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
        if sum > MOST {
            return Err(ArenaError::TooLarge);
        }
        let (starts, rivals) = rivals(buffers);
        let problem = Problem { buffers, starts, rivals };
        for (index, buffer) in buffers.iter().enumerate() {
            let Some(offset) = buffer.fixed else { continue };
            for &other in problem.rivals(index) {
                let rival = &buffers[other as usize];
                if rival.fixed.is_some_and(|f| f < offset + buffer.size && offset < f + rival.size) {
                    return Err(ArenaError::FixedOverlap(index, other as usize));
                }
            }
        }
        Ok(problem)
    }

    /// The buffers of size above 0 that are live together with `buffer`.
    pub fn rivals(&self, buffer: usize) -> &[u32] {
        &self.rivals[self.starts[buffer]..self.starts[buffer + 1]]
    }

    /// Where the highest buffer ends.
    pub fn height(&self, offsets: &[u64]) -> u64 {
        self.buffers.iter().zip(offsets).map(|(b, offset)| offset + b.size.0).max().unwrap_or(0)
    }
}

/// Lists of buffers that meet, for each buffer, by a sweep over births.
fn rivals(buffers: &[Buffer]) -> (Vec<usize>, Vec<u32>) {
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
    let mut rivals = vec![0u32; pairs.len() * 2];
    for (a, b) in pairs {
        rivals[next[a as usize]] = b;
        next[a as usize] += 1;
        rivals[next[b as usize]] = a;
        next[b as usize] += 1;
    }
    (starts, rivals)
}
