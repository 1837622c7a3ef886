//! Something that happens at an instant, for the event queues of simulations.

use std::cmp::Ordering;

/// An instant in microseconds and what happens then. Ordered so that a max-heap yields the earliest; of one instant's
/// the least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct At<T>(pub(super) f64, pub(super) T);

impl<T: PartialEq> Eq for At<T> {}

impl<T: Ord> Ord for At<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then_with(|| other.1.cmp(&self.1))
    }
}

impl<T: Ord> PartialOrd for At<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
