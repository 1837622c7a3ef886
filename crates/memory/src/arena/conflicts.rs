//! Which buffers are live at the same time, in memory proportional to their number.
//!
//! Buffers are numbered by start time, so those that start within a span of sections are a range. Those that started
//! earlier and are still live are found in the latest *snapshot* of live buffers, and among those that started after
//! it. A snapshot is taken whenever an eighth of the live buffers has changed. So the total size of the snapshots is
//! linear in the number of buffers, and the time of a query is linear in the size of its result.

use std::ops::Range;

/// A snapshot is taken once 1 in this many live buffers has changed.
const CHANGED: usize = 8;

/// The spans of buffers in sections of time, prepared for queries.
pub(super) struct Conflicts {
    spans: Vec<(u32, u32)>,
    /// For each section the first buffer that begins in it or later, then the number of buffers.
    first: Vec<u32>,
    /// For each section the latest snapshot.
    latest: Vec<u32>,
    snapshots: Vec<Snapshot>,
    live: Vec<u32>,
}

/// Buffers that are live at the start of a section.
#[derive(Clone, Copy)]
struct Snapshot {
    /// Their range in `live`.
    start: usize,
    end: usize,
    /// The first buffer that begins in the section or later.
    next: u32,
}

impl Conflicts {
    /// `spans` are half-open ranges of sections below `count`, none empty, in order of their start.
    pub fn new(spans: &[(u32, u32)], count: usize) -> Conflicts {
        let mut ends = vec![0usize; count + 1];
        spans.iter().for_each(|&(_, end)| ends[end as usize] += 1);
        let mut made = Conflicts {
            spans: spans.to_vec(),
            first: Vec::with_capacity(count + 1),
            latest: Vec::with_capacity(count),
            snapshots: vec![Snapshot { start: 0, end: 0, next: 0 }],
            live: Vec::new(),
        };
        let (mut born, mut died, mut before) = (0, 0, 0);
        for (section, ended) in (0u32..).zip(&ends[..count]) {
            died += ended;
            if (born + died - before) * CHANGED >= born - died && born + died > before {
                made.snapshot(section, born as u32);
                before = born + died;
            }
            made.latest.push(made.snapshots.len() as u32 - 1);
            made.first.push(born as u32);
            born += spans[born..].iter().take_while(|span| span.0 == section).count();
        }
        made.first.push(spans.len() as u32);
        made
    }

    /// Adds the snapshot of `section`, before which the buffers below `next` begin.
    fn snapshot(&mut self, section: u32, next: u32) {
        let Some(&Snapshot { start, end, next: since }) = self.snapshots.last() else { return };
        for at in start..end {
            let buffer = self.live[at];
            if self.spans[buffer as usize].1 > section {
                self.live.push(buffer);
            }
        }
        let spans = &self.spans;
        self.live.extend((since..next).filter(|&buffer| spans[buffer as usize].1 > section));
        self.snapshots.push(Snapshot { start: end, end: self.live.len(), next });
    }

    /// The sections of a buffer's lifetime.
    pub fn span(&self, buffer: u32) -> Range<usize> {
        let (start, end) = self.spans[buffer as usize];
        start as usize..end as usize
    }

    /// The buffers that begin in these sections.
    pub fn beginning(&self, sections: Range<usize>) -> Range<usize> {
        self.first[sections.start] as usize..self.first[sections.end] as usize
    }

    /// The number of sections.
    pub fn sections(&self) -> usize {
        self.first.len() - 1
    }

    /// The number of pairs of a buffer and one that shares a section with it, each counted from both sides.
    pub fn pairs(&self) -> u64 {
        let mut ends: Vec<u32> = self.spans.iter().map(|span| span.1).collect();
        ends.sort_unstable();
        // What begins before the end of a buffer shares a section with it, unless it has ended before.
        let mut ended = 0;
        let mut pairs = 0;
        for &(start, end) in &self.spans {
            while ends.get(ended).is_some_and(|end| *end <= start) {
                ended += 1;
            }
            pairs += u64::from(self.first[end as usize]) - 1 - ended as u64;
        }
        pairs
    }

    /// The buffers that share a section with `buffer`, in order of their beginning.
    pub fn of(&self, buffer: u32) -> impl Iterator<Item = u32> + '_ {
        let (start, end) = self.spans[buffer as usize];
        let snapshot = &self.snapshots[self.latest[start as usize] as usize];
        let (from, to) = (self.first[start as usize], self.first[end as usize]);
        let earlier = self.live[snapshot.start..snapshot.end].iter().copied().chain(snapshot.next..from);
        let live = earlier.filter(move |&other| self.spans[other as usize].1 > start);
        live.chain(from..buffer).chain(buffer + 1..to)
    }
}

/// The sections into which the beginnings of lifetimes divide time: their number, and the span of each lifetime.
pub(super) fn spans(lifetimes: impl Iterator<Item = (u64, u64)> + Clone) -> (usize, Vec<(u32, u32)>) {
    let mut births: Vec<u64> = lifetimes.clone().map(|(lower, _)| lower).collect();
    births.sort_unstable();
    births.dedup();
    let section = |step: u64| births.partition_point(|birth| *birth < step) as u32;
    (births.len(), lifetimes.map(|(lower, upper)| (section(lower), section(upper))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mut lifetimes: Vec<(u64, u64)>) -> (Conflicts, Vec<(u64, u64)>) {
        lifetimes.sort_by_key(|lifetime| lifetime.0);
        let (count, spans) = spans(lifetimes.iter().copied());
        (Conflicts::new(&spans, count), lifetimes)
    }

    #[test]
    fn conflicts_are_all_overlaps_in_order() {
        let mut rng = fastrand::Rng::with_seed(11);
        for round in 0..200 {
            let (steps, long) = (rng.u64(1..60), rng.u64(2..40));
            let lifetime = |_| {
                let lower = rng.u64(0..steps);
                (lower, lower + rng.u64(1..long))
            };
            let (conflicts, lifetimes) = of((0..round).map(lifetime).collect());
            let of_each = (0..lifetimes.len() as u32).map(|buffer| conflicts.of(buffer).count() as u64);
            assert_eq!(conflicts.pairs(), of_each.sum::<u64>());
            for (buffer, one) in (0..).zip(&lifetimes) {
                let overlaps = |(other, two): &(u32, &(u64, u64))| *other != buffer && one.0 < two.1 && two.0 < one.1;
                let all: Vec<u32> = (0..).zip(&lifetimes).filter(overlaps).map(|(other, _)| other).collect();
                assert_eq!(conflicts.of(buffer).collect::<Vec<_>>(), all, "{buffer} of {lifetimes:?}");
            }
        }
    }

    #[test]
    fn snapshots_are_proportional_to_the_buffers() {
        let count = 4000;
        let nested = (0..count).map(|k| (k, 2 * count - k)).collect();
        let alike = vec![(0, 1); count as usize];
        let chained = (0..count).map(|k| (k, k + 2)).collect();
        let dying = (0..count).map(|k| (k, if k % 2 == 0 { k + 1 } else { 2 * count })).collect();
        for lifetimes in [nested, alike, chained, dying] {
            let (conflicts, lifetimes) = of(lifetimes);
            assert!(conflicts.live.len() <= 2 * CHANGED * lifetimes.len(), "{}", conflicts.live.len());
        }
    }
}
