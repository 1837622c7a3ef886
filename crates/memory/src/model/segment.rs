//! Cost estimate of a segment of the group sequence that is computed in parts (tiles) one after the other.
//!
//! Cheap enough for every segment of a model. The segments that are selected by it are then built and evaluated exactly.

use super::{costs::GroupCosts, group_sequence::GroupSequence};
use edgecut_graph::{
    TensorId,
    units::{Bytes, Micros},
};
use edgecut_ops::passes::tile::{BoundsInference, TileRead};

/// The groups from position `first` to position `last`, computed in parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Segment {
    pub first: usize,
    pub last: usize,
    pub axis: usize,
    pub parts: u64,
    /// Peak memory while it runs, including everything live across it.
    pub peak: Bytes,
    /// As `peak`, if the parts of its results have to be concatenated before they are read.
    pub peak_with_concat: Bytes,
    pub time: Micros,
}

/// All segments of at most `longest` groups that end at `last` and are computed in `parts` along `axis` of its result.
pub(super) fn segments_ending_at(
    sequence: &GroupSequence<'_>,
    last: usize,
    axis: usize,
    parts: u64,
    longest: usize,
    costs: &dyn GroupCosts,
) -> Vec<Segment> {
    let mut found = Vec::new();
    let mut bounds = BoundsInference::new(sequence.splits, parts, axis);
    for first in (last.saturating_sub(longest - 1)..=last).rev() {
        if !sequence.groups[first].iter().rev().all(|id| bounds.push(*id)) {
            break;
        }
        if first < last || parts > 1 {
            found.extend(segment(sequence, (first, last), axis, parts, &bounds, costs));
        }
    }
    found
}

fn segment(
    sequence: &GroupSequence<'_>,
    (first, last): (usize, usize),
    axis: usize,
    parts: u64,
    bounds: &BoundsInference<'_, '_>,
    costs: &dyn GroupCosts,
) -> Option<Segment> {
    let (mut time, mut peak, mut done) = (0.0, 0, 0);
    for part in 0..parts as usize {
        let mut run = PartRun { sequence, bounds, first, last, part, time: 0.0, live: 0, peak: 0 };
        run.run(costs)?;
        time += run.time;
        peak = peak.max(done + run.peak);
        // The part's slices of the segment's results stay live.
        done += run.live;
    }
    let results = (first..=last).flat_map(|position| &sequence.writes[position]).map(|tensor| &sequence.values[tensor]);
    let largest = results.filter(|v| v.last > last).map(|v| v.bytes.0).max().unwrap_or(0);
    let concat = sequence.live_before[last + 1] + largest;
    let peak = peak + sequence.live_before[first];
    let (peak, peak_with_concat) = (Bytes(peak), Bytes(peak.max(concat)));
    Some(Segment { first, last, axis, parts, peak, peak_with_concat, time: Micros(time) })
}

/// The execution of one part of a segment.
struct PartRun<'l, 'a> {
    sequence: &'l GroupSequence<'a>,
    bounds: &'l BoundsInference<'l, 'a>,
    first: usize,
    last: usize,
    part: usize,
    time: f64,
    /// Bytes that the part has written and still needs.
    live: u64,
    peak: u64,
}

impl PartRun<'_, '_> {
    fn run(&mut self, costs: &dyn GroupCosts) -> Option<()> {
        for position in self.first..=self.last {
            let mut slices = 0;
            let mut dying = 0;
            let mut seen: Vec<TensorId> = Vec::new();
            for &id in self.sequence.groups[position] {
                for TileRead { tensor, range, size } in self.bounds.reads(id, self.part) {
                    let Some(value) = self.sequence.values.get(&tensor) else { continue };
                    let is_inside = value.producer.is_some_and(|producer| producer >= self.first);
                    if value.producer == Some(position) || seen.contains(&tensor) {
                        continue;
                    }
                    seen.push(tensor);
                    let needed = range.map_or(value.bytes.0, |range| {
                        proportion(value.bytes.0, range.end.saturating_sub(range.start), size)
                    });
                    let available = if is_inside { self.part_of(tensor)? } else { value.bytes.0 };
                    if needed < available {
                        slices += needed;
                        self.time += costs.copy(Bytes(needed)).0;
                    }
                    if is_inside && value.last == position {
                        dying += available;
                    }
                }
            }
            let written: u64 = self.sequence.writes[position].iter().map(|t| self.part_of(*t)).sum::<Option<u64>>()?;
            self.peak = self.peak.max(self.live + slices + written);
            self.live = self.live + written - dying.min(self.live + written);
            let bounds = self.sequence.groups[position].last().and_then(|last| self.bounds.of(*last));
            let share = bounds.map_or(1.0, |bounds| {
                let range = &bounds.ranges[self.part];
                (range.end - range.start) as f64 / bounds.size as f64
            });
            self.time += costs.part(self.sequence.groups[position], self.sequence.times[position], share).0;
        }
        Some(())
    }

    /// Bytes of this part of a tensor that the segment writes.
    fn part_of(&self, tensor: TensorId) -> Option<u64> {
        let producer = self.sequence.splits.graph.producer(tensor)?;
        let bytes = self.sequence.values[&tensor].bytes.0;
        if self.sequence.splits.is_constant(producer) {
            return Some(bytes);
        }
        let bounds = self.bounds.of(producer)?;
        let range = &bounds.ranges[self.part];
        Some(proportion(bytes, range.end - range.start, bounds.size))
    }
}

/// `bytes · of / size`, without overflow.
fn proportion(bytes: u64, of: u64, size: u64) -> u64 {
    (u128::from(bytes) * u128::from(of) / u128::from(size.max(1))) as u64
}
