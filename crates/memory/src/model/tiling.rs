//! Selection of the segments to compute in parts: for each limit on the peak, the fastest partition of the group
//! sequence into segments. Exact under the estimates of [`Segment`]: the peak of a segment depends only on itself and on
//! what is live across it, so this is a shortest path over the positions.

use super::{
    costs::GroupCosts,
    group_sequence::GroupSequence,
    segment::{Segment, segments_ending_at},
};
use edgecut_graph::units::Bytes;

/// The numbers of parts that are tried.
const PARTS: [u64; 9] = [2, 3, 4, 5, 6, 8, 10, 14, 20];
/// Limit on the groups of a segment.
const MAX_GROUPS: usize = 48;
/// Each limit is this fraction of the one before it.
const NEXT_LIMIT: f64 = 0.94;
/// Tilings that are slower than the whole by this factor are dropped.
const MAX_SLOWDOWN: f64 = 1.5;
/// Only segments that contain a group above this fraction of the peak are tried.
const HIGH_LOAD: f64 = 0.15;

/// A partition of the group sequence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tiling {
    /// The segments that are computed in parts, by position; all other groups are computed whole.
    pub segments: Vec<Segment>,
}

/// The fastest tilings under decreasing limits on the peak.
pub(super) fn tilings(sequence: &GroupSequence<'_>, costs: &dyn GroupCosts) -> Vec<Tiling> {
    let count = sequence.groups.len();
    let top = (0..count).map(|position| sequence.load(position)).max().unwrap_or(0);
    let whole: f64 = sequence.times.iter().map(|time| time.0).sum();
    let segments = all_segments(sequence, (top as f64 * HIGH_LOAD) as u64, costs);
    let mut found: Vec<Tiling> = Vec::new();
    for with_concat in [false, true] {
        let peak = |segment: &Segment| if with_concat { segment.peak_with_concat } else { segment.peak };
        let mut limit = top as f64 * NEXT_LIMIT;
        while limit > 1.0 {
            let max_time = whole * MAX_SLOWDOWN;
            let Some(tiling) = fastest(sequence, &segments, &peak, Bytes(limit as u64), max_time) else { break };
            limit = NEXT_LIMIT * limit.min(peak_of(sequence, &tiling, &peak).0 as f64);
            if !found.contains(&tiling) {
                found.push(tiling);
            }
        }
    }
    found
}

/// The segments that contain a group above `high` bytes and lower its peak, by the position after their last group.
fn all_segments(sequence: &GroupSequence<'_>, high: u64, costs: &dyn GroupCosts) -> Vec<Vec<Segment>> {
    let count = sequence.groups.len();
    let mut segments: Vec<Vec<Segment>> = vec![Vec::new(); count + 1];
    for last in 0..count {
        let Some(end) = sequence.groups[last].last() else { continue };
        for axis in sequence.splits.result_axes(*end) {
            for parts in PARTS {
                let found = segments_ending_at(sequence, last, axis, parts, MAX_GROUPS, costs);
                let loads = |s: &Segment| (s.first..=s.last).map(|position| sequence.load(position)).max();
                let is_useful = |s: &Segment| {
                    let whole = loads(s).unwrap_or(0);
                    whole > high && s.peak.0 < whole
                };
                segments[last + 1].extend(found.into_iter().filter(is_useful));
            }
        }
    }
    segments
}

/// The fastest tiling whose groups and segments all keep a limit; `None` if it is slower than `max_time`.
fn fastest(
    sequence: &GroupSequence<'_>,
    segments: &[Vec<Segment>],
    peak: &dyn Fn(&Segment) -> Bytes,
    limit: Bytes,
    max_time: f64,
) -> Option<Tiling> {
    let count = sequence.groups.len();
    // For each position the minimum time up to it, and the segment that ends there; `None` for a whole group.
    let mut best: Vec<(f64, Option<Segment>)> = vec![(f64::INFINITY, None); count + 1];
    best[0].0 = 0.0;
    for end in 1..=count {
        if sequence.load(end - 1) <= limit.0 {
            best[end] = (best[end - 1].0 + sequence.times[end - 1].0, None);
        }
        for segment in segments[end].iter().filter(|segment| peak(segment) <= limit) {
            let time = best[segment.first].0 + segment.time.0;
            if time < best[end].0 {
                best[end] = (time, Some(*segment));
            }
        }
    }
    if best[count].0 > max_time {
        return None;
    }
    let (mut at, mut chosen) = (count, Vec::new());
    while at > 0 {
        at = match best[at].1 {
            Some(segment) => {
                chosen.push(segment);
                segment.first
            }
            None => at - 1,
        };
    }
    chosen.reverse();
    Some(Tiling { segments: chosen })
}

/// The estimated peak of a tiling.
fn peak_of(sequence: &GroupSequence<'_>, tiling: &Tiling, peak: &dyn Fn(&Segment) -> Bytes) -> Bytes {
    let is_inside = |position: &usize| tiling.segments.iter().any(|s| (s.first..=s.last).contains(position));
    let whole = (0..sequence.groups.len()).filter(|position| !is_inside(position));
    let loads = whole.map(|position| Bytes(sequence.load(position)));
    loads.chain(tiling.segments.iter().map(peak)).max().unwrap_or_default()
}
