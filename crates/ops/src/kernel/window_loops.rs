//! Loops of windowed operators: pooling, and convolutions of dtypes without tract kernels.
//!
//! A convolution relates three index spaces: a tap of the window, an element of the *small* side (the result of a
//! convolution, the data of a transposed one), and the element of the *large* side at that tap of that window. Multiplying
//! two of the three and accumulating into the third is the convolution, the transposed convolution, or the weight gradient.

use crate::{kernel::element::Number, window::Window};

/// Elements along the last spatial axis related by one tap: element `small + j` to element `large + j · stride`, for j <
/// `len`.
#[derive(Debug, Clone, Copy)]
struct Row {
    tap: usize,
    small: usize,
    large: usize,
    len: usize,
}

/// All related pairs of elements of one channel of the small and of the large side.
pub(crate) struct Rows {
    rows: Vec<Row>,
    stride: usize,
    taps: usize,
    small: usize,
    large: usize,
}

/// The channels of the three tensors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Channels {
    pub batch: usize,
    pub groups: usize,
    /// Channels of the small side per group.
    pub small: usize,
    /// Channels of the large side per group.
    pub large: usize,
}

impl Rows {
    /// Relates spatial sizes `small` to `large` by one window per axis.
    pub fn new(windows: &[Window], small: &[usize], large: &[usize]) -> Rows {
        let taps: usize = windows.iter().map(|w| w.size as usize).product();
        let (small_len, large_len) = (small.iter().product(), large.iter().product());
        let mut all = Rows { rows: Vec::new(), stride: 1, taps, small: small_len, large: large_len };
        let Some((last, outer)) = windows.split_last() else { return all };
        all.stride = last.stride as usize;
        let (width, large_width) = (small[outer.len()], large[outer.len()]);
        let lines: usize = small[..outer.len()].iter().product();
        for tap in 0..taps {
            let shift = (tap as u64 % last.size) * last.dilation;
            // Windows before `first` read the padding before the axis, those from `end` on the padding after it.
            let first = last.before.saturating_sub(shift).div_ceil(last.stride);
            let end = (large_width as u64 + last.before).saturating_sub(shift).div_ceil(last.stride).min(width as u64);
            for line in 0..lines {
                if let Some(large_line) = large_line(tap / last.size as usize, line, outer, small, large)
                    && first < end
                {
                    all.rows.push(Row {
                        tap,
                        small: line * width + first as usize,
                        large: large_line * large_width + (first * last.stride + shift - last.before) as usize,
                        len: (end - first) as usize,
                    });
                }
            }
        }
        // Ordered by line of the small side, for cache locality.
        all.rows.sort_by_key(|row| (row.small / width.max(1), row.tap));
        all
    }

    /// `small = fold(small, large)` over all taps, for each plane of the tensors, whose elements are `pixel` numbers each.
    pub fn pool<T: Copy>(&self, pixel: usize, large: &[T], small: &mut [T], fold: impl Fn(T, T) -> T) {
        let (from, to) = (self.large * pixel, self.small * pixel);
        if from == 0 || to == 0 {
            return;
        }
        for (large, small) in large.chunks_exact(from).zip(small.chunks_exact_mut(to)) {
            for row in &self.rows {
                let out = &mut small[row.small * pixel..][..row.len * pixel];
                let taps = &large[row.large * pixel..];
                match (self.stride, pixel) {
                    (1, _) => out.iter_mut().zip(taps).for_each(|(o, x)| *o = fold(*o, *x)),
                    (2, 1) => out.iter_mut().zip(taps.chunks(2)).for_each(|(o, x)| *o = fold(*o, x[0])),
                    (stride, 1) => out.iter_mut().zip(taps.iter().step_by(stride)).for_each(|(o, x)| *o = fold(*o, *x)),
                    (stride, _) => {
                        for (out, taps) in out.chunks_exact_mut(pixel).zip(taps.chunks(stride * pixel)) {
                            out.iter_mut().zip(taps).for_each(|(o, x)| *o = fold(*o, *x));
                        }
                    }
                }
            }
        }
    }

    /// `small += large · weight`: the convolution. The weight is (groups · small, large, taps).
    pub fn gather<T: Number>(&self, channels: Channels, large: &[T], weight: &[T], small: &mut [T]) {
        self.gather_by(channels, large, weight, small, |sum, x, w| sum.add(x.mul(w)));
    }

    /// `small = fold(small, large, weight)` for all taps of all channels of the large side.
    pub fn gather_by<T: Copy>(
        &self,
        channels: Channels,
        large: &[T],
        weight: &[T],
        small: &mut [T],
        fold: impl Fn(T, T, T) -> T,
    ) {
        self.each(channels, |tap, from, to, row| {
            let weight = weight[tap + row.tap];
            let line = &mut small[from + row.small..][..row.len];
            for (out, x) in line.iter_mut().zip(large[to + row.large..].iter().step_by(self.stride)) {
                *out = fold(*out, *x, weight);
            }
        });
    }

    /// `large += small · weight`: the transposed convolution. The weight is (groups · small, large, taps).
    pub fn scatter<T: Number>(&self, channels: Channels, small: &[T], weight: &[T], large: &mut [T]) {
        self.each(channels, |tap, from, to, row| {
            let weight = weight[tap + row.tap];
            let line = &small[from + row.small..][..row.len];
            for (x, out) in line.iter().zip(large[to + row.large..].iter_mut().step_by(self.stride)) {
                *out = out.add(x.mul(weight));
            }
        });
    }

    /// `weight += small · large`: the weight gradient. The weight is (groups · small, large, taps).
    pub fn correlate<T: Number>(&self, channels: Channels, small: &[T], large: &[T], weight: &mut [T]) {
        self.each(channels, |tap, from, to, row| {
            let line = &small[from + row.small..][..row.len];
            let sum = products(line, large[to + row.large..].iter().step_by(self.stride));
            weight[tap + row.tap] = weight[tap + row.tap].add(sum);
        });
    }

    /// The related elements of one plane of the small and of the large side.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.rows.iter().flat_map(|row| (0..row.len).map(|j| (row.small + j, row.large + j * self.stride)))
    }

    /// Calls `visit` with the offsets of a channel pair in the weight, the small and the large side, and a row.
    fn each(&self, channels: Channels, mut visit: impl FnMut(usize, usize, usize, &Row)) {
        let Channels { batch, groups, small, large } = channels;
        for n in 0..batch {
            for from in 0..groups * small {
                for i in 0..large {
                    let to = from / small * large + i;
                    let tap = (from * large + i) * self.taps;
                    let (from, to) = (n * groups * small + from, n * groups * large + to);
                    self.rows.iter().for_each(|row| visit(tap, from * self.small, to * self.large, row));
                }
            }
        }
    }
}

/// The dot product, in eight accumulators for smaller rounding errors.
fn products<'a, T: Number>(a: &[T], b: impl Iterator<Item = &'a T>) -> T {
    let mut lanes = [T::default(); 8];
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        lanes[i % 8] = lanes[i % 8].add(a.mul(*b));
    }
    lanes.iter().fold(T::default(), |sum, lane| sum.add(*lane))
}

/// The line of the large side (all axes but the last) that the outer part of a tap relates to `line` of the small side;
/// `None` if it lies in the padding.
fn large_line(mut tap: usize, mut line: usize, outer: &[Window], small: &[usize], large: &[usize]) -> Option<usize> {
    let (mut found, mut step) = (0, 1);
    for (axis, window) in outer.iter().enumerate().rev() {
        let (k, at) = (tap as u64 % window.size, (line % small[axis]) as u64);
        tap /= window.size as usize;
        line /= small[axis];
        let i = (at * window.stride + k * window.dilation).checked_sub(window.before)? as usize;
        found += (i < large[axis]).then_some(i)? * step;
        step *= large[axis];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_relate_the_pairs_of_the_definition() {
        let windows = [
            Window { size: 2, stride: 2, dilation: 3, before: 1, after: 2 },
            Window { size: 3, stride: 1, dilation: 2, before: 2, after: 0 },
        ];
        let (small, large) = ([3usize, 4], [5usize, 6]);
        let rows = Rows::new(&windows, &small, &large);
        let mut found: Vec<_> = rows
            .rows
            .iter()
            .flat_map(|r| (0..r.len).map(|j| (r.tap, r.small + j, r.large + j * rows.stride)))
            .collect();
        let mut want = Vec::new();
        for (ky, kx, y, x) in (0..2)
            .flat_map(|ky| (0..3).flat_map(move |kx| (0..3).flat_map(move |y| (0..4).map(move |x| (ky, kx, y, x)))))
        {
            let (ly, lx) = (y as i64 * 2 + ky as i64 * 3 - 1, x as i64 + kx as i64 * 2 - 2);
            if (0..5).contains(&ly) && (0..6).contains(&lx) {
                want.push((ky * 3 + kx, y * 4 + x, (ly * 6 + lx) as usize));
            }
        }
        found.sort();
        want.sort();
        assert_eq!(found, want);
    }
}
