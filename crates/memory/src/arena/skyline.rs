//! The skyline of a partial packing: the top of every section, and its valleys.

use std::ops::Range;

use super::sections::Number;

/// A run of sections of equal tops between higher ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Valley<N> {
    pub span: Range<usize>,
    pub floor: N,
    /// The lower of the two walls; `None` if the valley is all sections.
    pub wall: Option<N>,
}

/// The valley that begins at `from`, where a run begins, if that run is one.
pub(super) fn valley<N: Number>(tops: &[N], from: usize) -> Option<Valley<N>> {
    let (floor, to) = (tops[from], run_end(tops, from));
    let left = from.checked_sub(1).map(|before| tops[before]);
    let right = tops.get(to).copied();
    let is_higher = |wall: Option<N>| wall.is_none_or(|wall| wall > floor);
    let is_valley = is_higher(left) && is_higher(right);
    is_valley.then(|| Valley { span: from..to, floor, wall: left.into_iter().chain(right).min() })
}

/// Where the run of equal tops ends that `from` is part of.
pub(super) fn run_end<N: Number>(tops: &[N], from: usize) -> usize {
    from + tops[from..].iter().take_while(|top| **top == tops[from]).count()
}

/// Where it begins.
pub(super) fn run_start<N: Number>(tops: &[N], from: usize) -> usize {
    from - tops[..from].iter().rev().take_while(|top| **top == tops[from]).count()
}

/// The number of steps between neighbouring sections.
pub(super) fn steps<N: Number>(tops: &[N]) -> usize {
    tops.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valleys_lie_between_higher_runs() {
        let tops = [3, 3, 1, 1, 2, 5, 0];
        assert_eq!(steps(&tops), 4);
        assert_eq!((run_end(&tops, 2), run_start(&tops, 3)), (4, 2));
        assert_eq!(valley(&tops, 0), None);
        assert_eq!(valley(&tops, 2), Some(Valley { span: 2..4, floor: 1, wall: Some(2) }));
        assert_eq!(valley(&tops, 4), None);
        assert_eq!(valley(&tops, 6), Some(Valley { span: 6..7, floor: 0, wall: Some(5) }));
        assert_eq!(valley(&[7, 7], 0), Some(Valley { span: 0..2, floor: 7, wall: None }));
    }
}
