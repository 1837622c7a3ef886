//! Memory pools: several memories of one device, such as on-chip SRAM and DRAM.

use crate::Packing;
use edgecut_graph::units::Bytes;

/// A memory that buffers may lie in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub name: String,
    /// `None` if unlimited.
    pub capacity: Option<Bytes>,
}

/// Buffers assigned to pools, with their offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPacking {
    /// The pool of each buffer.
    pub pools: Vec<usize>,
    /// For each pool the packing of its buffers, in the order of the buffers.
    pub packings: Vec<Packing>,
}

impl PoolPacking {
    /// The offset of each buffer in its pool.
    pub fn offsets(&self) -> Vec<Bytes> {
        let mut next: Vec<_> = self.packings.iter().map(|packing| packing.offsets.iter()).collect();
        self.pools.iter().map(|&pool| next[pool].next().copied().unwrap_or_default()).collect()
    }
}
