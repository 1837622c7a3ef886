//! Sliding windows of convolutions and pooling along one axis.

use std::ops::Range;

/// A window of `size` elements, `dilation` apart, which moves by `stride` over an axis with padding at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub size: u64,
    pub stride: u64,
    pub dilation: u64,
    pub before: u64,
    pub after: u64,
}

/// Treatment of an incomplete last window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Dropped.
    Floor,
    /// Kept: it extends beyond the padding.
    Ceil,
    /// Kept if it begins in the axis or in the padding before it, as in ONNX.
    CeilInside,
}

impl Window {
    /// Distance from the first to one past the last element of a window.
    pub fn extent(&self) -> u64 {
        self.size.saturating_sub(1).saturating_mul(self.dilation).saturating_add(1)
    }

    /// Number of windows over an axis of `n` elements; `None` if the window is larger than the padded axis.
    pub fn count(&self, n: u64, rounding: Rounding) -> Option<u64> {
        let padded = n.checked_add(self.before)?.checked_add(self.after)?;
        let slack = match rounding {
            Rounding::Floor => padded,
            Rounding::Ceil | Rounding::CeilInside => padded.checked_add(self.stride - 1)?,
        };
        let count = slack.checked_sub(self.extent())? / self.stride + 1;
        let last = (count - 1).saturating_mul(self.stride);
        let is_outside = rounding == Rounding::CeilInside && count > 1 && last >= n.saturating_add(self.before);
        Some(if is_outside { count - 1 } else { count })
    }

    /// The elements that the windows `range` cover of an axis of `n`, and how far they extend beyond its start and end.
    pub(crate) fn under(&self, range: &Range<u64>, n: u64) -> (Range<u64>, u64, u64) {
        let start = range.start.saturating_mul(self.stride);
        let end = range.end.saturating_sub(1).saturating_mul(self.stride).saturating_add(self.extent());
        let (data, behind) = (self.before, self.before.saturating_add(n));
        let inside = start.clamp(data, behind) - data..end.clamp(data, behind) - data;
        (inside, data.saturating_sub(start), end.saturating_sub(behind))
    }

    /// The elements of an axis of `n` that window number `at` covers, padding excluded.
    pub fn inside(&self, at: u64, n: u64) -> impl Iterator<Item = u64> + use<> {
        let (start, before) = (at * self.stride, self.before);
        let dilation = self.dilation;
        (0..self.size)
            .map(move |k| start + k * dilation)
            .filter(move |i| (before..before + n).contains(i))
            .map(move |i| i - before)
    }

    /// Number of elements of window number `at` within the axis and its explicit padding, as TVM computes its divisor
    /// (`topi/nn/pooling.h`): negative for a window that starts more than one step beyond.
    pub fn padded_len(&self, at: u64, n: u64) -> i64 {
        let start = (at * self.stride) as i64;
        let last = (start + self.extent() as i64).min((n + self.before + self.after) as i64) - 1;
        (last - start) / self.dilation as i64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_windows_is_that_of_tvm() {
        let window = |size, stride, dilation, before, after| Window { size, stride, dilation, before, after };
        for (w, n, floor, ceil) in [
            (window(2, 2, 1, 0, 0), 5, Some(2), Some(3)),
            (window(3, 1, 1, 1, 1), 7, Some(7), Some(7)),
            (window(3, 2, 2, 0, 1), 9, Some(3), Some(4)),
            (window(4, 1, 1, 0, 0), 3, None, None),
            (window(2, 2, 1, 0, 0), 1, None, Some(1)),
        ] {
            assert_eq!((w.count(n, Rounding::Floor), w.count(n, Rounding::Ceil)), (floor, ceil), "{w:?} over {n}");
        }
    }

    #[test]
    fn windows_that_begin_in_the_padding_at_the_end_are_none_of_onnx() {
        let window = |size, stride, before, after| Window { size, stride, dilation: 1, before, after };
        for (w, n, tvm, onnx) in [
            (window(1, 2, 0, 1), 4, 3, 2),
            (window(2, 3, 1, 1), 5, 3, 2),
            (window(3, 2, 1, 1), 4, 3, 3),
            (window(2, 2, 0, 0), 5, 3, 3),
        ] {
            let counts = (w.count(n, Rounding::Ceil), w.count(n, Rounding::CeilInside));
            assert_eq!(counts, (Some(tvm), Some(onnx)), "{w:?} over {n}");
        }
    }

    #[test]
    fn a_range_of_windows_covers_a_range_of_the_axis_and_its_padding() {
        let window = |size, stride, dilation, before, after| Window { size, stride, dilation, before, after };
        for (w, n, range, covered, before, after) in [
            (window(3, 1, 1, 1, 1), 8, 0..4, 0..5, 1, 0),
            (window(3, 1, 1, 1, 1), 8, 4..8, 3..8, 0, 1),
            (window(2, 2, 1, 0, 0), 8, 1..3, 2..6, 0, 0),
            (window(3, 2, 2, 2, 2), 9, 0..2, 0..5, 2, 0),
            (window(1, 1, 1, 2, 0), 4, 0..1, 0..0, 2, 0),
        ] {
            assert_eq!(w.under(&range, n), (covered, before, after), "{w:?} {range:?} of {n}");
        }
    }

    #[test]
    fn elements_outside_the_padding_are_excluded() {
        let w = Window { size: 3, stride: 2, dilation: 1, before: 1, after: 0 };
        assert_eq!(w.inside(0, 4).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((w.padded_len(0, 4), w.padded_len(2, 4)), (3, 1));
        let sparse = Window { size: 1, stride: 3, dilation: 1, before: 0, after: 0 };
        assert_eq!((sparse.padded_len(1, 5), sparse.padded_len(2, 6), sparse.padded_len(2, 5)), (1, 0, -1));
        assert_eq!(w.inside(2, 4).collect::<Vec<_>>(), [3]);
    }
}
