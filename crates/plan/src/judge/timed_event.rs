//! Timed events for the priority queues of simulations.

use std::cmp::Ordering;

/// An instant in microseconds and its event. Reversed order: a max-heap yields the earliest, and of one instant the least
/// event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TimedEvent<T>(pub(crate) f64, pub(crate) T);

impl<T: PartialEq> Eq for TimedEvent<T> {}

impl<T: Ord> Ord for TimedEvent<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then_with(|| other.1.cmp(&self.1))
    }
}

impl<T: Ord> PartialOrd for TimedEvent<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
