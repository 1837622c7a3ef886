//! Buffers with lifetimes, and their packing into an arena.

use serde::{Deserialize, Serialize};

use edgecut_graph::units::Bytes;

/// A buffer that is live from step `lower` (inclusive) to step `upper` (exclusive). Steps are positions in an order, or
/// times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Buffer {
    pub lower: u64,
    pub upper: u64,
    pub size: Bytes,
    /// The offset is a multiple of this, which is at least 1.
    pub align: u64,
    /// A fixed offset, if given.
    pub fixed: Option<Bytes>,
}

/// The offsets of buffers in an arena.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packing {
    /// In the order of the buffers.
    pub offsets: Vec<Bytes>,
    /// The size of the arena: the highest end of a buffer.
    pub height: Bytes,
    /// Lower bound on the height over all packings.
    pub bound: Bytes,
}

impl Buffer {
    pub fn new(lower: u64, upper: u64, size: Bytes) -> Buffer {
        Buffer { lower, upper, size, align: 1, fixed: None }
    }

    pub fn align(mut self, align: u64) -> Buffer {
        self.align = align;
        self
    }

    pub fn fixed(mut self, offset: Bytes) -> Buffer {
        self.fixed = Some(offset);
        self
    }

    /// Whether the lifetimes overlap.
    pub(crate) fn overlaps(&self, other: &Buffer) -> bool {
        self.lower < other.upper && other.lower < self.upper && self.lower < self.upper && other.lower < other.upper
    }
}

impl Packing {
    /// The distance of the height from the bound, as a fraction of the bound.
    pub fn gap(&self) -> f64 {
        match self.bound.0 {
            0 => 0.0,
            bound => (self.height.0 as f64 - bound as f64) / bound as f64,
        }
    }
}
