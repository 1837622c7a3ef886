//! What a kernel of our own computes, as data: for engines that have the operation but cannot call the function.

use tract_core::internal::*;

use super::{
    Call, Typed, index,
    reduce::{self, REDUCTIONS},
    window::Window,
};
pub use super::{image::Taps, statistics::Groups};

/// One of our own operators, described. Axes are those of the first operand.
#[derive(Debug, Clone)]
pub enum Recipe {
    Pool(Pooling),
    /// Each axis in turn is resampled by its taps.
    Resample(Vec<(usize, Taps)>),
    /// A copy by index tables; `None` shows the fill, which is the second operand if it is not here.
    Remap {
        tables: Vec<Vec<Option<usize>>>,
        fill: Option<Tensor>,
    },
    Normalise {
        groups: Groups,
        epsilon: f64,
        scale: bool,
        center: bool,
    },
    Take(Taking),
    /// A fold over some axes, by the operator's name: `max`, `min`, `prod`, `sum`, `all`, `any`.
    Fold {
        name: &'static str,
        axes: Vec<usize>,
    },
    /// `max(min(x, high), low)`.
    Clip {
        low: f64,
        high: f64,
    },
}

/// Pooling of planes over three axes, the missing ones in front, of elements that are `pixel` numbers.
#[derive(Debug, Clone)]
pub struct Pooling {
    /// The largest element, else the mean.
    pub largest: bool,
    pub plane: [usize; 3],
    pub pixel: usize,
    /// The windows along each axis.
    pub axes: [Vec<Seen>; 3],
}

/// The elements under one window along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub first: usize,
    pub count: usize,
    /// From one to the next.
    pub distance: usize,
    /// By what a sum is divided: the product of the three axes' numbers.
    pub divisor: usize,
}

/// Data is (batch, outer, length, block), indices are (batch, …), and blocks are copied whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taking {
    pub batch: usize,
    pub outer: usize,
    pub length: usize,
    pub block: usize,
    /// Indices outside count around, else they are moved to the nearest end.
    pub wraps: bool,
}

impl Pooling {
    /// Windows over `sizes` elements with `counts` results along up to three axes. `padded` divides by what lies in
    /// the data and its explicit padding.
    pub(super) fn sliding(
        largest: bool,
        windows: &[Window],
        sizes: &[usize],
        counts: &[usize],
        pixel: usize,
        padded: bool,
    ) -> Pooling {
        let along = |axis: usize| {
            let (window, n) = (windows[axis], sizes[axis] as u64);
            let seen = |at: u64| {
                let inside: Vec<u64> = window.inside(at, n).collect();
                let divisor = if padded { window.padded_len(at, n) as usize } else { inside.len().max(1) };
                Seen {
                    first: inside.first().map_or(0, |i| *i as usize),
                    count: inside.len(),
                    distance: window.dilation as usize,
                    divisor,
                }
            };
            (0..counts[axis] as u64).map(seen).collect()
        };
        Pooling::over(largest, sizes, pixel, (0..windows.len()).map(along).collect())
    }

    /// Windows side by side, by their ranges.
    pub(super) fn ranges(
        largest: bool,
        sizes: &[usize],
        pixel: usize,
        ranges: &[Vec<std::ops::Range<usize>>],
    ) -> Pooling {
        let seen = |range: &std::ops::Range<usize>| {
            let count = range.len();
            Seen { first: range.start, count, distance: 1, divisor: count.max(1) }
        };
        let axes = ranges.iter().map(|ranges| ranges.iter().map(seen).collect());
        Pooling::over(largest, sizes, pixel, axes.collect())
    }

    fn over(largest: bool, sizes: &[usize], pixel: usize, axes: Vec<Vec<Seen>>) -> Pooling {
        let one = vec![Seen { first: 0, count: 1, distance: 1, divisor: 1 }];
        let (mut plane, mut all) = ([1; 3], [one.clone(), one.clone(), one]);
        let missing = 3 - axes.len().min(3);
        for (axis, (size, windows)) in sizes.iter().zip(axes).enumerate().take(3) {
            plane[missing + axis] = *size;
            all[missing + axis] = windows;
        }
        Pooling { largest, plane, pixel, axes: all }
    }
}

/// What a call computes whose kernel is a function on whole tensors; `None` if that is not described.
pub(super) fn of_call(call: &Typed<'_>) -> Option<Recipe> {
    let Call { def, .. } = call.call;
    match def.name {
        "take" => index::taking(call).ok().map(Recipe::Take),
        "clip" => Some(Recipe::Clip {
            low: call.float("a_min", f64::NEG_INFINITY).ok()?,
            high: call.float("a_max", f64::INFINITY).ok()?,
        }),
        _ => {
            let name = REDUCTIONS.iter().find(|name| **name == def.name)?;
            let axes = reduce::reduced_axes(call, &call.tensor(0).ok()?.shape).ok()?;
            Some(Recipe::Fold { name, axes })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_described_without_what_lies_in_the_padding() {
        let window = Window { size: 3, stride: 2, dilation: 1, before: 1, after: 1 };
        for (padded, divisors) in [(false, [2, 3, 2]), (true, [3, 3, 3])] {
            let pooling = Pooling::sliding(false, &[window], &[5], &[3], 1, padded);
            assert_eq!(
                (pooling.plane, &pooling.axes[0][..], pooling.axes[1].len()),
                ([1, 1, 5], &[Seen { first: 0, count: 1, distance: 1, divisor: 1 }][..], 1)
            );
            let seen: Vec<_> = pooling.axes[2].iter().map(|s| (s.first, s.count, s.divisor)).collect();
            assert_eq!(seen, [(0, 2, divisors[0]), (1, 3, divisors[1]), (3, 2, divisors[2])]);
        }
    }
}
