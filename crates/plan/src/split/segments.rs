//! Segments: the groups that one move of the split search changes, in program order or alike in all layers.

use std::{collections::BTreeMap, ops::Range};

use crate::request::choice::{Choice, Choices};

/// Groups that a move changes, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment(Vec<usize>);

impl Segment {
    pub(super) fn groups(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, group: usize) -> bool {
        self.0.binary_search(&group).is_ok()
    }

    /// How the first of its split groups is split.
    pub(super) fn first_choice<'c>(&self, choices: &'c Choices) -> Option<&'c Choice> {
        self.0.iter().find_map(|group| choices.get(group))
    }

    /// How its split groups are split.
    pub(super) fn choices_mut<'c>(&self, choices: &'c mut Choices) -> impl Iterator<Item = (usize, &'c mut Choice)> {
        choices.iter_mut().filter(|(group, _)| self.contains(**group)).map(|(group, choice)| (*group, choice))
    }
}

impl From<Range<usize>> for Segment {
    fn from(range: Range<usize>) -> Segment {
        Segment(range.collect())
    }
}

/// Segments of `groups` groups, for every length by repeated halving; each starts in the middle of the one before it.
pub(super) fn overlapping(groups: usize) -> impl Iterator<Item = Segment> {
    overlapping_ranges(groups).map(Segment::from)
}

fn overlapping_ranges(groups: usize) -> impl Iterator<Item = Range<usize>> {
    lengths(groups)
        .flat_map(move |length| (0..groups).step_by(length.div_ceil(2)).map(move |at| at..(at + length).min(groups)))
}

/// Segments of `groups` groups: all of them, halves, quarters, until there are `most` or each is one group.
pub(super) fn segments(groups: usize, most: usize) -> impl Iterator<Item = Segment> {
    let enough = move |length: &usize| groups.div_ceil(*length) <= most;
    let of = move |length: usize| (0..groups).step_by(length).map(move |at| at..(at + length).min(groups));
    lengths(groups).take_while(enough).flat_map(of).map(Segment::from)
}

/// `groups`, half of them, a quarter, down to one.
fn lengths(groups: usize) -> impl Iterator<Item = usize> {
    let halved = |length: &usize| (*length > 1).then(|| length.div_ceil(2));
    std::iter::successors((groups > 0).then_some(groups), halved)
}

/// Successive sequences of groups that compute the same.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layers {
    first: usize,
    /// Groups of one layer.
    length: usize,
    count: usize,
}

impl Layers {
    /// The layers of groups with these representatives. Their length is the most frequent distance between two successive
    /// groups that compute the same.
    pub(super) fn of(representatives: &[usize]) -> Option<Layers> {
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        let mut distances: BTreeMap<usize, usize> = BTreeMap::new();
        for (group, representative) in representatives.iter().enumerate() {
            if let Some(before) = last.insert(*representative, group) {
                *distances.entry(group - before).or_default() += 1;
            }
        }
        let (length, _) = distances.into_iter().max_by_key(|(_, times)| *times)?;
        let is_repeated = |first: &usize| {
            let next = representatives.get(first + length..first + 2 * length);
            next.is_some_and(|next| representatives[*first..first + length] == *next)
        };
        let first = (0..representatives.len()).find(is_repeated)?;
        let layers = representatives[first..].chunks_exact(length);
        let count = layers.take_while(|layer| **layer == representatives[first..first + length]).count();
        Some(Layers { first, length, count })
    }

    /// The groups of each layer.
    pub(super) fn each(&self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(|number| {
            let begin = self.first + number * self.length;
            begin..begin + self.length
        })
    }

    /// Parts of a layer, in all layers at once: as [`overlapping`] segments of one.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment> {
        let alike =
            |part: Range<usize>| self.each().flat_map(|layer| layer.skip(part.start).take(part.len())).collect();
        overlapping_ranges(self.length).map(move |part| Segment(alike(part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_everything_at_every_length() {
        let of = |ranges: &[Range<usize>]| ranges.iter().cloned().map(Segment::from).collect::<Vec<_>>();
        let found: Vec<Segment> = segments(5, 5).collect();
        assert_eq!(found, of(&[0..5, 0..3, 3..5, 0..2, 2..4, 4..5, 0..1, 1..2, 2..3, 3..4, 4..5]));
        assert_eq!(segments(5, 2).count(), 3);
        assert_eq!(segments(0, 8).count(), 0);
        let found: Vec<Segment> = overlapping(4).collect();
        assert_eq!(found, of(&[0..4, 2..4, 0..2, 1..3, 2..4, 3..4, 0..1, 1..2, 2..3, 3..4]));
    }

    #[test]
    fn layers_are_found_between_other_groups() {
        let of = |representatives: &[usize]| Layers::of(representatives);
        let layers = |first, length, count| Some(Layers { first, length, count });
        // An embedding, three layers of a norm, two equal products and a sum, and a last norm.
        assert_eq!(of(&[0, 1, 2, 2, 4, 1, 2, 2, 4, 1, 2, 2, 4, 1]), layers(1, 4, 3));
        assert_eq!(of(&[0, 0, 0, 0]), layers(0, 1, 4));
        assert_eq!(of(&[0, 1, 2, 3]), None);
        assert_eq!(of(&[0, 1, 2, 0]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn parts_of_all_layers_are_segments() {
        let layers = Layers::of(&[0, 1, 2, 1, 2, 1, 2, 7]).unwrap();
        let found: Vec<Segment> = layers.segments().collect();
        let of = |groups: &[usize]| Segment(groups.to_vec());
        assert_eq!(found, [of(&[1, 2, 3, 4, 5, 6]), of(&[2, 4, 6]), of(&[1, 3, 5]), of(&[2, 4, 6])]);
    }
}
