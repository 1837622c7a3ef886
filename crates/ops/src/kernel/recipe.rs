//! What a host or custom kernel computes, as data: for engines that have the operation but cannot call the function.

use std::ops::Range;

use tract_core::internal::*;

use crate::window::Window;
pub use crate::{kernel::moments::NormGroups, taps::Taps};

/// The computation of one kernel. Axes are those of the first operand.
#[derive(Debug, Clone)]
pub enum Recipe {
    Pool(Pooling),
    /// Resamples each axis in turn by its taps.
    Resample(Vec<(usize, Taps)>),
    /// A copy by one index table an axis; `None` selects the fill value, which is the second operand if `fill` is
    /// `None`.
    Remap {
        tables: Vec<Vec<Option<usize>>>,
        fill: Option<Tensor>,
    },
    Normalise {
        groups: NormGroups,
        epsilon: f64,
        scale: bool,
        center: bool,
    },
    Take(TakeDims),
    /// A reduction over some axes, by Relay's name: `max`, `min`, `prod`, `sum`, `all`, `any`.
    Fold {
        name: &'static str,
        axes: Vec<usize>,
    },
    /// `max(min(x, high), low)`, which makes `high` of NaN unless it `keeps_nan`: then `min(max(x, low), high)`.
    Clip {
        low: f64,
        high: f64,
        keeps_nan: bool,
    },
}

/// Pooling over three spatial axes (missing ones are outermost, of length 1) of elements of `inner` numbers each.
#[derive(Debug, Clone)]
pub struct Pooling {
    /// Maximum; else mean.
    pub largest: bool,
    pub plane: [usize; 3],
    pub inner: usize,
    /// The windows along each axis.
    pub axes: [Vec<WindowSpan>; 3],
}

/// The elements that one window covers along one axis, padding excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSpan {
    pub first: usize,
    pub count: usize,
    /// Distance between consecutive elements.
    pub step: usize,
    /// A window's sum is divided by the product of its three divisors.
    pub divisor: usize,
}

/// Dimensions of `take`: data (batch, outer, length, block) indexed by (batch, …); blocks are copied whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeDims {
    pub batch: usize,
    pub outer: usize,
    pub length: usize,
    pub block: usize,
    /// Indices out of bounds are taken modulo the length; else clamped.
    pub wraps: bool,
}

impl Pooling {
    /// Sliding windows over up to three axes of `sizes` elements with `counts` results. With `padded` the divisor
    /// counts explicit padding.
    pub(crate) fn sliding(
        largest: bool,
        windows: &[Window],
        sizes: &[usize],
        counts: &[usize],
        inner: usize,
        padded: bool,
    ) -> Pooling {
        let along = |axis: usize| {
            let (window, n) = (windows[axis], sizes[axis] as u64);
            let span = |at: u64| {
                let inside: Vec<u64> = window.inside(at, n).collect();
                let divisor = if padded { window.padded_len(at, n) as usize } else { inside.len().max(1) };
                WindowSpan {
                    first: inside.first().map_or(0, |i| *i as usize),
                    count: inside.len(),
                    step: window.dilation as usize,
                    divisor,
                }
            };
            (0..counts[axis] as u64).map(span).collect()
        };
        Pooling::over(largest, sizes, inner, (0..windows.len()).map(along).collect())
    }

    /// With `divisor` for every window.
    pub(crate) fn divided_by(mut self, divisor: i64) -> Pooling {
        self.axes.iter_mut().flatten().for_each(|span| span.divisor = 1);
        let divisor = usize::try_from(divisor).unwrap_or(1);
        self.axes[2].iter_mut().for_each(|span| span.divisor = divisor);
        self
    }

    /// Windows given as element ranges.
    pub(crate) fn ranges(largest: bool, sizes: &[usize], inner: usize, ranges: &[Vec<Range<usize>>]) -> Pooling {
        let span = |range: &Range<usize>| {
            let count = range.len();
            WindowSpan { first: range.start, count, step: 1, divisor: count.max(1) }
        };
        let axes = ranges.iter().map(|ranges| ranges.iter().map(span).collect());
        Pooling::over(largest, sizes, inner, axes.collect())
    }

    fn over(largest: bool, sizes: &[usize], inner: usize, axes: Vec<Vec<WindowSpan>>) -> Pooling {
        let one = vec![WindowSpan { first: 0, count: 1, step: 1, divisor: 1 }];
        let (mut plane, mut all) = ([1; 3], [one.clone(), one.clone(), one]);
        let missing = 3 - axes.len().min(3);
        for (axis, (size, windows)) in sizes.iter().zip(axes).enumerate().take(3) {
            plane[missing + axis] = *size;
            all[missing + axis] = windows;
        }
        Pooling { largest, plane, inner, axes: all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_exclude_padding() {
        let window = Window { size: 3, stride: 2, dilation: 1, before: 1, after: 1 };
        for (padded, divisors) in [(false, [2, 3, 2]), (true, [3, 3, 3])] {
            let pooling = Pooling::sliding(false, &[window], &[5], &[3], 1, padded);
            assert_eq!(
                (pooling.plane, &pooling.axes[0][..], pooling.axes[1].len()),
                ([1, 1, 5], &[WindowSpan { first: 0, count: 1, step: 1, divisor: 1 }][..], 1)
            );
            let spans: Vec<_> = pooling.axes[2].iter().map(|s| (s.first, s.count, s.divisor)).collect();
            assert_eq!(spans, [(0, 2, divisors[0]), (1, 3, divisors[1]), (3, 2, divisors[2])]);
        }
    }
}
