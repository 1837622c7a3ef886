//! What an arena holds: ranges of bytes with a lifetime.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A range of bytes that must stay untouched from step `lower` up to, not including, step `upper`.
///
/// Steps are any increasing numbers: places in an order, or times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Buffer {
    pub lower: u64,
    pub upper: u64,
    pub size: Bytes,
    /// The offset must be a multiple of this; at least 1.
    pub align: u64,
    /// Where the buffer must lie, if that is given.
    pub fixed: Option<Bytes>,
}

/// Where every buffer lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packing {
    /// In the order of the buffers.
    pub offsets: Vec<Bytes>,
    /// Where the highest buffer ends: the size of the arena.
    pub height: Bytes,
    /// No packing of these buffers is lower.
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

    /// Whether both are live at one step at least.
    pub fn meets(&self, other: &Buffer) -> bool {
        self.lower < other.upper && other.lower < self.upper && self.lower < self.upper && other.lower < other.upper
    }
}

impl Packing {
    /// How far the height may be above the best possible, as a fraction of the bound.
    pub fn gap(&self) -> f64 {
        match self.bound.0 {
            0 => 0.0,
            bound => (self.height.0 as f64 - bound as f64) / bound as f64,
        }
    }
}
