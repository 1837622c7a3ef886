//! A counter that only grows, until it starts again from 0.

/// The last value of a counter, and the largest one that it can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrappingCounter {
    last: u64,
    /// `None` if the counter is as wide as a `u64`: it then never wraps, and a smaller value means that it was reset.
    range: Option<u64>,
}

impl WrappingCounter {
    pub fn new(first: u64, range: Option<u64>) -> WrappingCounter {
        WrappingCounter { last: first, range }
    }

    /// What was counted since the value before. More than one wrap in between cannot be seen, nor that a counter with a range
    /// was reset rather than wrapped. Of one without, what was counted before a reset is unknown, and counts as nothing.
    pub fn advance(&mut self, now: u64) -> u64 {
        let before = std::mem::replace(&mut self.last, now);
        match self.range {
            _ if now >= before => now - before,
            Some(range) => range.saturating_sub(before).saturating_add(now),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_goes_on_through_its_wrap() {
        let mut counter = WrappingCounter::new(90, Some(100));
        let counted: Vec<u64> = [95, 100, 3, 3, 99, 1].into_iter().map(|now| counter.advance(now)).collect();
        assert_eq!(counted, [5, 5, 3, 0, 96, 2]);
    }

    #[test]
    fn a_reset_counts_as_nothing() {
        let mut counter = WrappingCounter::new(90, None);
        assert_eq!([100, 7, 9].map(|now| counter.advance(now)), [10, 0, 2]);
        assert_eq!(WrappingCounter::new(200, Some(100)).advance(5), 5, "a value beyond the range");
        assert_eq!(WrappingCounter::new(0, Some(u64::MAX)).advance(u64::MAX), u64::MAX);
    }
}
