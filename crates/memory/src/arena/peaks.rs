//! The highest load within a range of time, in logarithmic time.

use std::ops::Range;

/// A tree of maxima over the loads of a sequence.
pub(super) struct Peaks {
    /// The root is at 1, those below `i` are at `2 i` and `2 i + 1`, the loads in the second half.
    highest: Vec<u64>,
    count: usize,
}

impl Peaks {
    pub fn new(loads: &[u64]) -> Peaks {
        let count = loads.len();
        let mut highest = vec![0; count];
        highest.extend_from_slice(loads);
        (1..count).rev().for_each(|at| highest[at] = highest[2 * at].max(highest[2 * at + 1]));
        Peaks { highest, count }
    }

    /// The highest load in the range, 0 if that is empty.
    pub fn within(&self, range: Range<usize>) -> u64 {
        let (mut from, mut to) = (range.start + self.count, range.end + self.count);
        let mut peak = 0;
        while from < to {
            if from % 2 == 1 {
                peak = peak.max(self.highest[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                peak = peak.max(self.highest[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_of_all_ranges() {
        for count in 0..20u64 {
            let loads: Vec<u64> = (0..count).map(|at| at * 7 % 11).collect();
            let peaks = Peaks::new(&loads);
            for from in 0..loads.len() {
                for to in from..=loads.len() {
                    assert_eq!(peaks.within(from..to), loads[from..to].iter().copied().max().unwrap_or(0));
                }
            }
        }
    }
}
