//! The unplaced buffers, prepared for the question that filling a valley asks: which of those that live within it is the
//! most desirable?
//!
//! A tree over the buffers in order of their beginning. Each inner place has the highest key and the earliest end below
//! it, by which a search skips what is no better than the best one found, or ends too late.

use std::ops::Range;

/// Places of the tree that a query visits until it is content with the best buffer so far. On a million random
/// lifetimes queries for the best one visit thousands, for packings that are no lower.
const VISITS: usize = 256;

/// The highest key and the earliest end of some buffers.
#[derive(Clone, Copy)]
struct Place {
    key: f64,
    end: u32,
}

/// No buffer.
const NONE: Place = Place { key: f64::NEG_INFINITY, end: u32::MAX };

/// The unplaced buffers.
pub(super) struct Candidates {
    /// The root is at 1, those below `i` are at `2 i` and `2 i + 1`, the leaves in the second half.
    places: Vec<Place>,
    leaves: usize,
}

impl Candidates {
    /// All buffers: the key of each, and the section in which it ends, in order of their beginning.
    pub fn new(buffers: impl ExactSizeIterator<Item = (f64, u32)>) -> Candidates {
        let leaves = buffers.len().next_power_of_two();
        let mut places = vec![NONE; 2 * leaves];
        places[leaves..].iter_mut().zip(buffers).for_each(|(place, (key, end))| *place = Place { key, end });
        let mut made = Candidates { places, leaves };
        (1..leaves).rev().for_each(|at| made.pull(at));
        made
    }

    /// Removes a buffer, because it is placed.
    pub fn remove(&mut self, buffer: usize) {
        let mut at = buffer + self.leaves;
        self.places[at] = NONE;
        while at > 1 {
            at /= 2;
            self.pull(at);
        }
    }

    /// One of the buffers in `range` that end at `end` or before, if there are any: the one with the highest key among the
    /// first that are looked at. Also the number of places visited.
    pub fn best(&self, range: Range<usize>, end: u32) -> (Option<usize>, usize) {
        let mut best: Option<(f64, usize)> = None;
        let mut visits = 0;
        // At most one place of a level waits. Where all of a place is in the range and its earliest end in time, there is a
        // buffer that fits, so the first one is found after as many visits as the tree has levels, or twice that.
        let mut waiting = vec![(1, 0..self.leaves)];
        while let Some((at, leaves)) = waiting.pop() {
            let place = self.places[at];
            let is_no_better = best.is_some_and(|(key, _)| place.key <= key);
            let is_outside = leaves.end <= range.start || range.end <= leaves.start;
            if is_outside || place.end > end || is_no_better {
                continue;
            }
            visits += 1;
            if leaves.len() == 1 {
                best = Some((place.key, leaves.start));
                continue;
            }
            if best.is_some() && visits > VISITS {
                break;
            }
            let middle = leaves.start.midpoint(leaves.end);
            let (low, high) = ((2 * at, leaves.start..middle), (2 * at + 1, middle..leaves.end));
            let low_first = self.places[2 * at].key >= self.places[2 * at + 1].key;
            waiting.extend(if low_first { [high, low] } else { [low, high] });
        }
        (best.map(|(_, buffer)| buffer), visits)
    }

    fn pull(&mut self, at: usize) {
        let (low, high) = (self.places[2 * at], self.places[2 * at + 1]);
        self.places[at] = Place { key: low.key.max(high.key), end: low.end.min(high.end) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_of_a_range_that_ends_in_time_is_found() {
        let mut rng = fastrand::Rng::with_seed(3);
        for count in 0..40 {
            let mut buffers: Vec<(f64, u32)> = (0..count).map(|_| (f64::from(rng.u8(..)), rng.u32(0..20))).collect();
            let mut candidates = Candidates::new(buffers.iter().copied());
            for _ in 0..count {
                let from = rng.usize(0..count);
                let range = from..rng.usize(from..=count);
                let end = rng.u32(0..20);
                let fitting = range.clone().filter(|&at| buffers[at].1 <= end).map(|at| buffers[at].0);
                let highest = fitting.max_by(f64::total_cmp);
                let (found, _) = candidates.best(range, end);
                assert_eq!(found.map(|at| buffers[at].0), highest);
                if let Some(found) = found {
                    candidates.remove(found);
                    buffers[found] = (f64::NEG_INFINITY, u32::MAX);
                }
            }
        }
    }
}
