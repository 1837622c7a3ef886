//! Sliding windows: how a convolution or a pooling walks along one axis.

use std::ops::Range;

use super::{Call, TypeError, layout::map_dim, split::SplitAxis};
use crate::graph::{Attr, Dim};

/// A window of `size` elements, `dilation` apart, moved by `stride` over an axis padded on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub size: u64,
    pub stride: u64,
    pub dilation: u64,
    pub before: u64,
    pub after: u64,
}

/// What happens to a last window that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// It is left out.
    Floor,
    /// It is kept and reaches beyond the padding.
    Ceil,
}

impl Window {
    /// Elements from the first to the last one that a window touches.
    pub fn extent(&self) -> u64 {
        self.size.saturating_sub(1).saturating_mul(self.dilation).saturating_add(1)
    }

    /// Number of windows over an axis of `n` elements; `None` if not one fits.
    pub fn count(&self, n: u64, rounding: Rounding) -> Option<u64> {
        let padded = n.checked_add(self.before)?.checked_add(self.after)?;
        let slack = match rounding {
            Rounding::Floor => padded,
            Rounding::Ceil => padded.checked_add(self.stride - 1)?,
        };
        Some(slack.checked_sub(self.extent())? / self.stride + 1)
    }

    /// What the windows numbered `range` touch of an axis of `n`, and how far they reach beyond its ends.
    pub fn under(&self, range: &Range<u64>, n: u64) -> (Range<u64>, u64, u64) {
        let start = range.start.saturating_mul(self.stride);
        let end = range.end.saturating_sub(1).saturating_mul(self.stride).saturating_add(self.extent());
        let (data, behind) = (self.before, self.before.saturating_add(n));
        let inside = start.clamp(data, behind) - data..end.clamp(data, behind) - data;
        (inside, data.saturating_sub(start), end.saturating_sub(behind))
    }

    /// The elements of an axis of `n` that window number `at` touches, without those in the padding.
    pub fn inside(&self, at: u64, n: u64) -> impl Iterator<Item = u64> + use<> {
        let (start, before) = (at * self.stride, self.before);
        let dilation = self.dilation;
        (0..self.size)
            .map(move |k| start + k * dilation)
            .filter(move |i| (before..before + n).contains(i))
            .map(move |i| i - before)
    }

    /// Number of elements of window number `at` that lie in the axis or its explicit padding, negative for one that
    /// begins more than one step beyond: as TVM counts them (`topi/nn/pooling.h`), which divides by their number.
    pub fn padded_len(&self, at: u64, n: u64) -> i64 {
        let start = (at * self.stride) as i64;
        let last = (start + self.extent() as i64).min((n + self.before + self.after) as i64) - 1;
        (last - start) / self.dilation as i64 + 1
    }
}

impl SplitAxis {
    /// A shard needs what its windows touch of `axis` of operand `index`, which has `n` elements, and has the rest in
    /// its `padding`: `windows[which]` is the one along this axis.
    pub(super) fn under(self, index: usize, axis: usize, n: Dim, windows: &[Window], which: usize) -> SplitAxis {
        let (Some(window), Some(n)) = (windows.get(which).copied(), n.get()) else { return self };
        let whole: Vec<(u64, u64)> = windows.iter().map(|w| (w.before, w.after)).collect();
        self.reach(index, axis, move |range| window.under(range, n).0).attr("padding", move |range| {
            let (_, before, after) = window.under(range, n);
            // Windows that are kept although they do not fit reach further than the padding.
            let own = (before, after.min(window.after));
            let sides = |side: fn(&(u64, u64)) -> u64| {
                whole.iter().enumerate().map(move |(i, pad)| side(if i == which { &own } else { pad }))
            };
            let all = sides(|pad| pad.0).chain(sides(|pad| pad.1));
            Attr::List(all.map(|n| Attr::Int(n as i64)).collect())
        })
    }
}

impl Call<'_> {
    /// One positive number for each of `rank` axes; `default` for an attribute that is not written.
    pub(super) fn steps(&self, key: &str, rank: usize, default: u64) -> Result<Vec<u64>, TypeError> {
        let Some(written) = self.ints(key)?.filter(|list| !list.is_empty()) else { return Ok(vec![default; rank]) };
        let positive: Option<Vec<u64>> =
            written.iter().map(|n| u64::try_from(*n).ok().filter(|n| (1..1 << 31).contains(n))).collect();
        match positive {
            Some(steps) if steps.len() == rank => Ok(steps),
            Some(steps) if steps.len() == 1 => Ok(vec![steps[0]; rank]),
            _ => Err(self.error(format!("attribute {key} is {written:?}, expected {rank} positive integers"))),
        }
    }

    /// One size for each of `rank` axes, zeros for an attribute that is not written.
    pub(super) fn sizes_or_zero(&self, key: &str, rank: usize) -> Result<Vec<u64>, TypeError> {
        let Some(written) = self.ints(key)? else { return Ok(vec![0; rank]) };
        let sizes: Option<Vec<u64>> = written.iter().map(|n| u64::try_from(*n).ok().filter(|n| *n < 1 << 31)).collect();
        match sizes {
            Some(sizes) if sizes.len() == rank => Ok(sizes),
            Some(sizes) if sizes.len() == 1 => Ok(vec![sizes[0]; rank]),
            _ => Err(self.error(format!("attribute {key} is {written:?}, expected {rank} sizes"))),
        }
    }

    /// Padding before and after each of `rank` axes: one number for all sides, one for each axis, or all
    /// numbers before and then all after.
    pub(super) fn padding(&self, rank: usize) -> Result<Vec<(u64, u64)>, TypeError> {
        let Some(written) = self.ints("padding")? else { return Ok(vec![(0, 0); rank]) };
        let expected =
            || self.error(format!("attribute padding is {written:?}, expected 1, {rank} or {} sizes", 2 * rank));
        let sizes: Option<Vec<u64>> = written.iter().map(|n| u64::try_from(*n).ok().filter(|n| *n < 1 << 31)).collect();
        let sizes = sizes.ok_or_else(expected)?;
        match sizes.len() {
            1 => Ok(vec![(sizes[0], sizes[0]); rank]),
            n if n == 2 * rank => Ok(sizes[..rank].iter().copied().zip(sizes[rank..].iter().copied()).collect()),
            n if n == rank => Ok(sizes.iter().map(|s| (*s, *s)).collect()),
            _ => Err(expected()),
        }
    }

    /// The windows of `sizes` with this call's `strides`, `dilation` and `padding`.
    pub(super) fn windows(&self, sizes: &[u64]) -> Result<Vec<Window>, TypeError> {
        let rank = sizes.len();
        let (strides, dilations) = (self.steps("strides", rank, 1)?, self.steps("dilation", rank, 1)?);
        let paddings = self.padding(rank)?;
        let window = |axis: usize| {
            let (before, after) = paddings[axis];
            Window { size: sizes[axis], stride: strides[axis], dilation: dilations[axis], before, after }
        };
        Ok((0..rank).map(window).collect())
    }

    /// The size of an axis after `window` went over it; `?` stays.
    pub(super) fn windowed(&self, n: Dim, window: &Window, rounding: Rounding) -> Result<Dim, TypeError> {
        let Some(size) = n.get() else { return Ok(Dim::Any) };
        let count = window.count(size, rounding).filter(|_| window.size > 0).ok_or_else(|| {
            let (before, after) = (window.before, window.after);
            self.error(format!(
                "a window of {} does not fit an axis of {size} padded by {before} and {after}",
                window.extent()
            ))
        })?;
        Ok(map_dim(n, |_| count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_as_tvm_counts_them() {
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
    fn cells_beyond_the_padding_count_for_nothing() {
        let w = Window { size: 3, stride: 2, dilation: 1, before: 1, after: 0 };
        assert_eq!(w.inside(0, 4).collect::<Vec<_>>(), [0, 1]);
        assert_eq!((w.padded_len(0, 4), w.padded_len(2, 4)), (3, 1));
        let sparse = Window { size: 1, stride: 3, dilation: 1, before: 0, after: 0 };
        assert_eq!((sparse.padded_len(1, 5), sparse.padded_len(2, 6), sparse.padded_len(2, 5)), (1, 0, -1));
        assert_eq!(w.inside(2, 4).collect::<Vec<_>>(), [3]);
    }
}
