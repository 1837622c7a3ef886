//! Polyphase decomposition of planes, which makes strided windows contiguous.
//!
//! A tap of a window with strides (sy, sx) reads every sy-th row and every sx-th column of a plane. Each of the sy · sx
//! *phases* is copied to contiguous memory. A tap is then one offset, and the results of all windows, line by line, form
//! one contiguous *run*: its loop has no borders and is vectorised. Lines end in as much padding as windows extend beyond the
//! left or right edge.

use crate::window::Window;

/// Results that a loop over a run may compute at once; buffers are larger by this many elements.
pub const LANES: usize = 32;

/// A buffer has at most this many times the elements of a plane and its results together, and [`SPARE`] more: what padding,
/// strides or dilation make larger is left to other loops.
const MAX_GROWTH: usize = 16;
const SPARE: usize = 4096;

/// Upper limit on the taps of a window.
const MAX_TAPS: u64 = 1 << 16;

/// The phases of planes of one size for one window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phases {
    plane: [usize; 2],
    out: [usize; 2],
    strides: [usize; 2],
    /// Rows of a phase, including padding above the data, and columns, which are also those of a run.
    rows: usize,
    above: usize,
    width: usize,
    /// Elements in front of the first phase.
    lead: usize,
    offsets: Vec<usize>,
    after: usize,
}

impl Phases {
    /// The phases for windows over planes of `plane` rows and columns with `out` rows and columns of results; a single axis
    /// is a plane of one row. `None` for more axes, empty planes, and windows that spread over much more than a plane.
    pub fn new(windows: &[Window], plane: &[usize], out: &[usize]) -> Option<Phases> {
        let single = Window { size: 1, stride: 1, dilation: 1, before: 0, after: 0 };
        let (windows, plane, out) = match (windows, plane, out) {
            (&[y, x], &[h, w], &[a, b]) => ([y, x], [h, w], [a, b]),
            (&[x], &[w], &[b]) => ([single, x], [1, w], [1, b]),
            _ => return None,
        };
        u32::try_from(plane[0].checked_mul(plane[1])?).ok().filter(|n| *n > 0 && !out.contains(&0))?;
        windows[0].size.checked_mul(windows[1].size).filter(|taps| *taps <= MAX_TAPS)?;
        let strides = windows.map(|w| w.stride as usize);
        // The offset of each tap from its window's position along one axis.
        let shifts = |axis: usize| {
            let Window { size, dilation, before, .. } = windows[axis];
            (0..size).map(move |tap| (tap * dilation) as i64 - before as i64).collect::<Vec<i64>>()
        };
        let (down, right) = (shifts(0), shifts(1));
        let (sy, sx) = (strides[0] as i64, strides[1] as i64);
        let steps = |shifts: &[i64], stride: i64| {
            let steps = shifts.iter().map(|shift| shift.div_euclid(stride));
            steps.fold((0, 0), |(low, high): (i64, i64), step| (low.min(step), high.max(step)))
        };
        let ((top, bottom), (left, beyond)) = (steps(&down, sy), steps(&right, sx));
        let (above, lead) = (top.unsigned_abs() as usize, left.unsigned_abs() as usize);
        let rows = above + (out[0] + bottom as usize).max(plane[0].div_ceil(strides[0]));
        let after = beyond as usize;
        // What windows read left of a line is the padding at the end of the line before.
        let width = (out[1] + after).max(plane[1].div_ceil(strides[1]) + lead);
        let dense = out[0].checked_mul(out[1])?.checked_add(plane[0] * plane[1])?.checked_mul(MAX_GROWTH)?;
        let spread = strides[0].checked_mul(strides[1])?.checked_mul(rows)?.checked_mul(width)?;
        if spread.max(rows.checked_mul(width)?) > dense.checked_add(SPARE)? {
            return None;
        }
        let mut offsets = Vec::new();
        for (dy, dx) in down.iter().flat_map(|dy| right.iter().map(move |dx| (*dy, *dx))) {
            let phase = (dy.rem_euclid(sy) * sx + dx.rem_euclid(sx)) as usize;
            let row = (dy.div_euclid(sy) - top) as usize;
            let start = (phase * rows + row) * width;
            offsets.push(start + (lead as i64 + dx.div_euclid(sx)) as usize);
        }
        Some(Phases { plane, out, strides, rows, above, width, lead, offsets, after })
    }

    /// Whether the lines of a run are adjacent, so that the run is the result.
    pub fn is_contiguous(&self) -> bool {
        self.width == self.out[1]
    }

    /// The buffer offset of each tap of the first window, in row-major order of the taps.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Number of results of one plane.
    pub fn results(&self) -> usize {
        self.out[0] * self.out[1]
    }

    /// A buffer for the phases of one plane, filled with `padding`.
    pub fn buffer<T: Copy>(&self, padding: T) -> Vec<T> {
        vec![padding; self.lead + self.strides[0] * self.strides[1] * self.rows * self.width + self.after + LANES]
    }

    /// A buffer for the run of results, rounded up to whole lanes.
    pub fn run<T: Copy>(&self, zero: T) -> Vec<T> {
        vec![zero; ((self.out[0] - 1) * self.width + self.out[1]).next_multiple_of(LANES)]
    }

    /// Copies a plane into the buffer; padding is not touched.
    pub fn fill<T: Copy>(&self, plane: &[T], buffer: &mut [T]) {
        let ([sy, sx], width) = (self.strides, self.plane[1].max(1));
        if self.strides == [1, 1] && self.width == width {
            buffer[self.lead + self.above * width..][..plane.len()].copy_from_slice(plane);
            return;
        }
        let size = self.rows * self.width;
        for (y, from) in plane.chunks_exact(width).enumerate() {
            let start = self.lead + y % sy * sx * size + (self.above + y / sy) * self.width;
            let line = &mut buffer[start..];
            if sx == 1 {
                line[..width].copy_from_slice(from);
                continue;
            }
            if sx == 2 {
                // Both phases at once, which is vectorised.
                let (even, odd) = line.split_at_mut(size);
                let (pairs, rest) = from.as_chunks::<2>();
                for ((even, odd), pair) in even.iter_mut().zip(odd.iter_mut()).zip(pairs) {
                    (*even, *odd) = (pair[0], pair[1]);
                }
                rest.iter().for_each(|last| even[pairs.len()] = *last);
                continue;
            }
            for px in 0..sx.min(width) {
                let to = &mut line[px * size..][..self.width];
                to.iter_mut().zip(from[px..].iter().step_by(sx)).for_each(|(to, from)| *to = *from);
            }
        }
    }

    /// Copies the results out of a run.
    pub fn take<T: Copy>(&self, run: &[T], out: &mut [T]) {
        if self.is_contiguous() {
            out.copy_from_slice(&run[..out.len()]);
            return;
        }
        let lines = out.chunks_exact_mut(self.out[1]).zip(run.chunks(self.width));
        lines.for_each(|(out, run)| out.copy_from_slice(&run[..out.len()]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Rounding;

    #[test]
    fn windows_that_spread_far_have_no_phases() {
        let window = |size, stride, dilation, before| Window { size, stride, dilation, before, after: 0 };
        for far in [window(2, 1, 1 << 20, 1 << 20), window(1, 1 << 20, 1, 0), window(1 << 30, 1, 1, 1 << 30)] {
            assert!(Phases::new(&[far, far], &[8, 8], &[8, 8]).is_none(), "{far:?}");
        }
    }

    #[test]
    fn phases_fold_the_elements_of_each_window() {
        let window = |size, stride, dilation, before, after| Window { size, stride, dilation, before, after };
        for (windows, plane) in [
            ([window(3, 1, 1, 1, 1), window(3, 1, 1, 1, 1)], [5usize, 4usize]),
            ([window(3, 1, 1, 0, 0), window(3, 1, 1, 0, 0)], [5, 4]),
            ([window(3, 2, 1, 1, 1), window(3, 2, 1, 0, 1)], [7, 8]),
            ([window(3, 2, 1, 1, 1), window(3, 2, 1, 1, 1)], [8, 8]),
            ([window(2, 3, 2, 2, 0), window(5, 2, 1, 2, 3)], [9, 6]),
            ([window(1, 4, 1, 0, 0), window(1, 1, 1, 3, 0)], [9, 3]),
            ([window(3, 1, 1, 0, 0), window(3, 3, 3, 1, 5)], [3, 7]),
            ([window(1, 1, 1, 0, 0), window(2, 5, 1, 1, 3)], [2, 2]),
            ([window(3, 1, 1, 5, 4), window(3, 2, 1, 6, 7)], [2, 3]),
        ] {
            let count = |axis: usize| windows[axis].count(plane[axis] as u64, Rounding::Floor).unwrap() as usize;
            let out = [count(0), count(1)];
            let phases = Phases::new(&windows, &plane, &out).unwrap();
            let values: Vec<i64> = (1..=(plane[0] * plane[1]) as i64).collect();
            let mut buffer = phases.buffer(0);
            phases.fill(&values, &mut buffer);
            let mut run = phases.run(7i64);
            for (tap, offset) in phases.offsets().iter().enumerate() {
                run.iter_mut().zip(&buffer[*offset..]).for_each(|(sum, x)| *sum += (1 << tap) * x);
            }
            let mut found = vec![0; out[0] * out[1]];
            phases.take(&run, &mut found);
            let mut want = Vec::new();
            for (y, x) in (0..out[0]).flat_map(|y| (0..out[1]).map(move |x| (y, x))) {
                let mut sum = 7;
                for tap in 0..windows[0].size * windows[1].size {
                    let (ky, kx) = (tap / windows[1].size, tap % windows[1].size);
                    let at =
                        |i: usize, k: u64, w: &Window| (i as u64 * w.stride + k * w.dilation).checked_sub(w.before);
                    let place = at(y, ky, &windows[0]).zip(at(x, kx, &windows[1]));
                    let inside = place.filter(|(y, x)| *y < plane[0] as u64 && *x < plane[1] as u64);
                    sum += inside.map_or(0, |(y, x)| values[y as usize * plane[1] + x as usize] << tap);
                }
                want.push(sum);
            }
            assert_eq!(found, want, "{windows:?} over {plane:?}");
        }
    }
}
