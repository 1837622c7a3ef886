//! What else a model touches between two runs of the same operator.
//!
//! An operator that runs alone in a loop finds its weights in the nearest cache. In a model they have been
//! displaced by everything that ran since. Before each sample as many bytes are read as the rest of the
//! model has, so that an operator measured alone finds the caches as it does in its place.

use crate::graph::Graph;

/// More than the private caches of any core have, and as much as is read in a few milliseconds.
const MOST: u64 = 128 << 20;
/// Distance between reads: a cache line.
const LINE: usize = 64;

/// A buffer as large as a model's parameters and tensors together, up to [`MOST`].
pub(super) struct Surroundings {
    buffer: Vec<u8>,
}

impl Surroundings {
    pub(super) fn of(graph: &Graph) -> Surroundings {
        let bytes: u64 = graph.tensors().filter_map(|(_, t)| t.ty.bytes()).map(|b| b.0).fold(0, u64::saturating_add);
        // Not zeroes: those would all be one physical page.
        Surroundings { buffer: vec![1; bytes.min(MOST) as usize] }
    }

    /// Displaces from the caches what is not used now.
    pub(super) fn visit(&self) {
        let sum: u64 = self.buffer.iter().step_by(LINE).map(|b| u64::from(*b)).sum();
        std::hint::black_box(sum);
    }
}
