//! Reads the sliding windows of a call from its attributes; split axes along windows.

use edgecut_graph::{Attr, Dim};

use crate::{
    def::{Call, TypeError},
    layout::map_dim,
    split::SplitAxis,
    window::{Rounding, Window},
};

impl SplitAxis {
    /// A shard reads the range that its windows cover of `axis` (of length `n`) of operand `index`; the rest of the windows
    /// is in its attribute `padding`. `windows[which]` is the window along this axis.
    pub(crate) fn under(self, index: usize, axis: usize, n: Dim, windows: &[Window], which: usize) -> SplitAxis {
        let (Some(window), Some(n)) = (windows.get(which).copied(), n.get()) else { return self };
        let whole: Vec<(u64, u64)> = windows.iter().map(|w| (w.before, w.after)).collect();
        self.access(index, axis, move |range| window.under(range, n).0).attr("padding", move |range| {
            let (_, before, after) = window.under(range, n);
            // Windows kept by `Rounding::Ceil` extend beyond the padding.
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
    /// One positive number per axis, for `rank` axes; `default` if the attribute is absent.
    pub fn steps(&self, key: &str, rank: usize, default: u64) -> Result<Vec<u64>, TypeError> {
        let Some(written) = self.ints(key)?.filter(|list| !list.is_empty()) else { return Ok(vec![default; rank]) };
        let positive: Option<Vec<u64>> =
            written.iter().map(|n| u64::try_from(*n).ok().filter(|n| (1..1 << 31).contains(n))).collect();
        match positive {
            Some(steps) if steps.len() == rank => Ok(steps),
            Some(steps) if steps.len() == 1 => Ok(vec![steps[0]; rank]),
            _ => Err(self.error(format!("attribute {key} is {written:?}, expected {rank} positive integers"))),
        }
    }

    /// One size per axis, for `rank` axes; zeros if the attribute is absent.
    pub fn sizes_or_zero(&self, key: &str, rank: usize) -> Result<Vec<u64>, TypeError> {
        let Some(written) = self.ints(key)? else { return Ok(vec![0; rank]) };
        let sizes: Option<Vec<u64>> = written.iter().map(|n| u64::try_from(*n).ok().filter(|n| *n < 1 << 31)).collect();
        match sizes {
            Some(sizes) if sizes.len() == rank => Ok(sizes),
            Some(sizes) if sizes.len() == 1 => Ok(vec![sizes[0]; rank]),
            _ => Err(self.error(format!("attribute {key} is {written:?}, expected {rank} sizes"))),
        }
    }

    /// Padding before and after each of `rank` axes: one number for all, one per axis, or all numbers before followed by all
    /// after.
    pub fn padding(&self, rank: usize) -> Result<Vec<(u64, u64)>, TypeError> {
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

    /// Windows of `sizes` with the call's `strides`, `dilation` and `padding`.
    pub fn windows(&self, sizes: &[u64]) -> Result<Vec<Window>, TypeError> {
        let rank = sizes.len();
        let (strides, dilations) = (self.steps("strides", rank, 1)?, self.steps("dilation", rank, 1)?);
        let paddings = self.padding(rank)?;
        let window = |axis: usize| {
            let (before, after) = paddings[axis];
            Window { size: sizes[axis], stride: strides[axis], dilation: dilations[axis], before, after }
        };
        Ok((0..rank).map(window).collect())
    }

    /// The number of windows over an axis of size `n`; `?` stays.
    pub fn windowed(&self, n: Dim, window: &Window, rounding: Rounding) -> Result<Dim, TypeError> {
        let Some(size) = n.get() else { return Ok(Dim::Any) };
        let count = window.count(size, rounding).filter(|_| window.size > 0).ok_or_else(|| {
            let (before, after) = (window.before, window.after);
            self.error(format!(
                "a window of {} is larger than an axis of {size} padded by {before} and {after}",
                window.extent()
            ))
        })?;
        Ok(map_dim(n, |_| count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::lookup;
    use edgecut_graph::Attrs;

    /// The value of `read` on a call with one attribute.
    fn with<T>(key: &str, value: Option<&[i64]>, read: impl Fn(&Call<'_>) -> Result<T, TypeError>) -> Option<T> {
        let mut attrs = Attrs::new();
        if let Some(value) = value {
            attrs.set(key, Attr::List(value.iter().map(|n| Attr::Int(*n)).collect()));
        }
        let def = lookup("nn.max_pool2d").unwrap();
        read(&Call { def, attrs: &attrs, args: &[], values: &[] }).ok()
    }

    #[test]
    fn padding_has_one_value_or_one_per_axis_or_one_per_side() {
        for (written, padding) in [
            (None, Some(vec![(0, 0), (0, 0)])),
            (Some(&[3][..]), Some(vec![(3, 3), (3, 3)])),
            (Some(&[1, 2]), Some(vec![(1, 1), (2, 2)])),
            (Some(&[1, 2, 3, 4]), Some(vec![(1, 3), (2, 4)])),
            (Some(&[1, 2, 3]), None),
            (Some(&[-1]), None),
        ] {
            assert_eq!(with("padding", written, |call| call.padding(2)), padding, "{written:?}");
        }
    }

    #[test]
    fn steps_are_positive() {
        for (written, steps) in [
            (None, Some(vec![7, 7])),
            (Some(&[2][..]), Some(vec![2, 2])),
            (Some(&[2, 3]), Some(vec![2, 3])),
            (Some(&[]), Some(vec![7, 7])),
            (Some(&[2, 0]), None),
            (Some(&[1, 2, 3]), None),
        ] {
            assert_eq!(with("strides", written, |call| call.steps("strides", 2, 7)), steps, "{written:?}");
        }
    }

    #[test]
    fn the_result_of_a_window_has_its_number_of_positions() {
        let window = Window { size: 3, stride: 2, dilation: 1, before: 1, after: 1 };
        let size = |n| with("", None, |call| call.windowed(n, &window, Rounding::Floor));
        assert_eq!(size(Dim::Known(7)), Some(Dim::Known(4)));
        assert_eq!(size(Dim::Wide(7)), Some(Dim::Wide(4)));
        assert_eq!(size(Dim::Any), Some(Dim::Any));
        assert_eq!(size(Dim::Known(0)), None, "the window is larger than the padded axis");
    }
}
