//! Several memories, the best one first: what fits goes into the first, what is left into the next.

use super::{
    ArenaError, Options,
    first_fit::{traits, within},
    pack,
    preference::FIRST_FIT,
    problem::Problem,
};
use crate::{
    memory::{Buffer, Packing},
    units::Bytes,
};

/// A memory that buffers may lie in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    /// `None` if there is enough of it.
    pub capacity: Option<Bytes>,
}

/// Buffers in pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pooled {
    /// For each buffer its pool.
    pub pools: Vec<usize>,
    /// For each pool the buffers in it and where they lie, in the order of the buffers.
    pub packings: Vec<Packing>,
}

/// Why buffers cannot be put into pools.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error(transparent)]
    Arena(#[from] ArenaError),
    #[error("{buffers} buffers of {bytes} bytes together fit in no pool")]
    Full { buffers: usize, bytes: u64 },
}

/// Puts every buffer into the first of `pools` in which there is room for it: of what does not fit whole, each pool takes
/// as many bytes for as many steps as any of some orders of first fit gets into it. A given
/// offset is one in whichever pool takes the buffer.
///
/// # Errors
/// As [`pack`], and if no pool has room for some buffers.
pub fn pack_pools(buffers: &[Buffer], pools: &[Pool], options: &Options) -> Result<Pooled, PoolError> {
    let mut pooled = Pooled { pools: vec![0; buffers.len()], packings: Vec::new() };
    let mut left: Vec<usize> = (0..buffers.len()).collect();
    for (number, pool) in pools.iter().enumerate() {
        let waiting: Vec<Buffer> = left.iter().map(|&index| buffers[index]).collect();
        let (taken, packing) = fill(&waiting, pool.capacity, options)?;
        left.iter().zip(&taken).filter(|(_, taken)| **taken).for_each(|(&index, _)| pooled.pools[index] = number);
        let mut taken = taken.into_iter();
        left.retain(|_| !taken.next().unwrap_or(true));
        pooled.packings.push(packing);
    }
    match left.is_empty() {
        true => Ok(pooled),
        false => Err(PoolError::Full {
            buffers: left.len(),
            bytes: left.iter().map(|&index| buffers[index].size).sum::<Bytes>().0,
        }),
    }
}

impl Pooled {
    /// For each buffer where it lies in its pool.
    pub fn offsets(&self) -> Vec<Bytes> {
        let mut next: Vec<_> = self.packings.iter().map(|packing| packing.offsets.iter()).collect();
        self.pools.iter().map(|&pool| next[pool].next().copied().unwrap_or_default()).collect()
    }
}

/// Which of the buffers a pool takes, and where they lie.
fn fill(buffers: &[Buffer], capacity: Option<Bytes>, options: &Options) -> Result<(Vec<bool>, Packing), ArenaError> {
    let all = pack(buffers, &Options { capacity, ..*options })?;
    let Some(capacity) = capacity.filter(|capacity| all.height > *capacity) else {
        return Ok((vec![true; buffers.len()], all));
    };
    let problem = Problem::new(buffers)?;
    let traits = traits(&problem);
    let mut best: (u128, Vec<Option<u64>>) = (0, vec![None; buffers.len()]);
    for preference in FIRST_FIT {
        let mut order: Vec<u32> = (0..buffers.len() as u32).collect();
        preference.sort(&mut order, |buffer| traits[buffer as usize]);
        let offsets = within(&problem, &order, capacity.0);
        let held = buffers.iter().zip(&offsets).filter(|(_, offset)| offset.is_some());
        let held: u128 = held.map(|(b, _)| u128::from(b.size.0) * u128::from(b.upper - b.lower)).sum();
        if held > best.0 {
            best = (held, offsets);
        }
    }
    let taken: Vec<bool> = best.1.iter().map(Option::is_some).collect();
    let kept: Vec<Buffer> = buffers.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(b, _)| *b).collect();
    let offsets: Vec<Bytes> = best.1.iter().flatten().map(|offset| Bytes(*offset)).collect();
    let height = kept.iter().zip(&offsets).map(|(b, offset)| *offset + b.size).max().unwrap_or_default();
    Ok((taken, Packing { bound: crate::memory::bound::arena(&kept), offsets, height }))
}
