//! Packing into several memories: each buffer goes into the first pool that has room for it.

use std::ops::ControlFlow;

use super::{
    ArenaError, PackOptions,
    first_fit::{traits, within},
    pack_watched,
    preference::FIRST_FIT,
    problem::Problem,
    watch::Watcher,
};
use crate::{Buffer, Packing, Pool, PoolPacking};
use edgecut_graph::units::Bytes;

/// Why buffers do not fit into pools.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error(transparent)]
    Arena(#[from] ArenaError),
    #[error("{buffers} buffers of {} bytes together fit in no pool", .bytes.0)]
    Full { buffers: usize, bytes: Bytes },
}

/// Assigns every buffer to the first of `pools` that has room for it. If not all remaining buffers fit into a pool, it
/// takes the selection with the most bytes times steps over a portfolio of first-fit orders. A fixed offset applies in
/// whichever pool takes the buffer.
///
/// # Errors
/// As [`pack`], and if no pool has room for some buffers.
pub fn pack_pools(buffers: &[Buffer], pools: &[Pool], options: &PackOptions) -> Result<PoolPacking, PoolError> {
    pack_pools_watched(buffers, pools, options, &mut |_| ControlFlow::Continue(()))
}

/// The same, while `watcher` receives the best height of the pool that is being packed. If it breaks, what remains is
/// packed without a search.
///
/// # Errors
/// As [`pack_pools`].
pub fn pack_pools_watched(
    buffers: &[Buffer],
    pools: &[Pool],
    options: &PackOptions,
    watcher: &mut Watcher<'_>,
) -> Result<PoolPacking, PoolError> {
    let mut pooled = PoolPacking { pools: vec![0; buffers.len()], packings: Vec::new() };
    let mut left: Vec<usize> = (0..buffers.len()).collect();
    for (number, pool) in pools.iter().enumerate() {
        let waiting: Vec<Buffer> = left.iter().map(|&index| buffers[index]).collect();
        let (taken, packing) = fill(&waiting, pool.capacity, options, watcher)?;
        left.iter().zip(&taken).filter(|(_, taken)| **taken).for_each(|(&index, _)| pooled.pools[index] = number);
        let mut taken = taken.into_iter();
        left.retain(|_| !taken.next().unwrap_or(true));
        pooled.packings.push(packing);
    }
    match left.is_empty() {
        true => Ok(pooled),
        false => {
            Err(PoolError::Full { buffers: left.len(), bytes: left.iter().map(|&index| buffers[index].size).sum() })
        }
    }
}

/// The buffers that a pool takes, and their packing.
fn fill(
    buffers: &[Buffer],
    capacity: Option<Bytes>,
    options: &PackOptions,
    watcher: &mut Watcher<'_>,
) -> Result<(Vec<bool>, Packing), ArenaError> {
    let all = pack_watched(buffers, &PackOptions { capacity, ..*options }, watcher)?;
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
    Ok((taken, Packing { bound: crate::bound::arena(&kept), offsets, height }))
}
