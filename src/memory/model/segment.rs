//! What a stretch of groups costs when it is computed in parts: an estimate that is cheap enough to make for every
//! stretch of a model. What is chosen by it is then built and judged exactly.

use std::collections::HashMap;

use super::Costs;
use crate::{
    graph::{OperatorId, TensorId},
    ops::tiled::{Backwards, Splits},
    units::{Bytes, Micros},
};

/// Groups in an order, with the tensors that they exchange.
pub struct Line<'a> {
    pub splits: &'a Splits<'a>,
    pub groups: Vec<&'a [OperatorId]>,
    pub times: Vec<Micros>,
    pub values: HashMap<TensorId, Span>,
    /// By group: what it makes for others.
    pub writes: Vec<Vec<TensorId>>,
    /// By place: bytes made before it that are read at it or later.
    pub before: Vec<u64>,
}

/// One tensor's life over the places of a [`Line`].
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub bytes: u64,
    /// The place of the group that makes it; `None` for an input.
    pub made: Option<usize>,
    /// The last place that reads it; the number of groups if the model returns it.
    pub last: usize,
}

/// A stretch from place `first` to place `last`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    pub first: usize,
    pub last: usize,
    pub axis: usize,
    pub parts: u64,
    /// Bytes, all that lives around it counted.
    pub peak: u64,
    /// The same if its results must be joined before they are read.
    pub joined: u64,
    pub time: f64,
}

impl<'a> Line<'a> {
    /// The groups with these numbers of `groups`, in this order.
    pub fn new(splits: &'a Splits<'a>, groups: &'a [Vec<OperatorId>], times: &[Micros], order: &[usize]) -> Line<'a> {
        let graph = splits.graph;
        let bytes = |tensor: TensorId| graph.tensor(tensor).ty.bytes().unwrap_or_default().0;
        let mut values: HashMap<TensorId, Span> = HashMap::new();
        for input in graph.inputs() {
            values.insert(input, Span { bytes: bytes(input), made: None, last: 0 });
        }
        let mut writes = vec![Vec::new(); order.len()];
        for (place, &index) in order.iter().enumerate() {
            for operator in groups[index].iter().map(|id| graph.operator(*id)) {
                for tensor in operator.operands() {
                    if let Some(value) = values.get_mut(&tensor) {
                        value.last = value.last.max(place);
                    }
                }
                for &output in &operator.outputs {
                    values.insert(output, Span { bytes: bytes(output), made: Some(place), last: place });
                }
            }
        }
        for output in &graph.outputs {
            if let Some(value) = values.get_mut(output) {
                value.last = order.len();
            }
        }
        // What only its own group reads is that group's affair.
        values.retain(|_, value| value.made.is_none_or(|made| value.last > made));
        let mut before = vec![0; order.len() + 1];
        for (tensor, value) in &values {
            let from = value.made.map_or(0, |made| made + 1);
            before[from..=value.last].iter_mut().for_each(|sum| *sum += value.bytes);
            if let Some(made) = value.made {
                writes[made].push(*tensor);
            }
        }
        writes.iter_mut().for_each(|list| list.sort_unstable());
        let groups = order.iter().map(|&index| &groups[index][..]).collect();
        Line { splits, groups, times: order.iter().map(|&i| times[i]).collect(), values, writes, before }
    }

    fn bytes_made(&self, place: usize) -> u64 {
        self.writes[place].iter().map(|tensor| self.values[tensor].bytes).sum()
    }

    /// Memory while a whole group runs.
    pub fn load(&self, place: usize) -> u64 {
        self.before[place] + self.bytes_made(place)
    }

    /// All stretches that end at `last` and are computed in `parts` along `axis` of its result.
    pub fn segments(&self, last: usize, axis: usize, parts: u64, longest: usize, costs: &dyn Costs) -> Vec<Segment> {
        let mut found = Vec::new();
        let mut backwards = Backwards::new(self.splits, parts, axis);
        for first in (last.saturating_sub(longest - 1)..=last).rev() {
            if !self.groups[first].iter().rev().all(|id| backwards.push(*id)) {
                break;
            }
            if first < last || parts > 1 {
                found.extend(self.segment(first, last, axis, parts, &backwards, costs));
            }
        }
        found
    }

    fn segment(
        &self,
        first: usize,
        last: usize,
        axis: usize,
        parts: u64,
        backwards: &Backwards<'_, '_>,
        costs: &dyn Costs,
    ) -> Option<Segment> {
        let (mut time, mut peak, mut done) = (0.0, 0, 0);
        for part in 0..parts as usize {
            let mut run = Part { line: self, backwards, first, last, part, time: 0.0, live: 0, peak: 0 };
            run.run(costs)?;
            time += run.time;
            peak = peak.max(done + run.peak);
            // What is left are pieces of the stretch's results.
            done += run.live;
        }
        let results = || (first..=last).flat_map(|place| &self.writes[place]).map(|tensor| &self.values[tensor]);
        let most = results().filter(|v| v.last > last).map(|v| v.bytes).max().unwrap_or(0);
        let joined = self.before[last + 1] + most;
        let peak = peak + self.before[first];
        Some(Segment { first, last, axis, parts, peak, joined: peak.max(joined), time })
    }
}

/// One part of a stretch while it is gone through.
struct Part<'l, 'a> {
    line: &'l Line<'a>,
    backwards: &'l Backwards<'l, 'a>,
    first: usize,
    last: usize,
    part: usize,
    time: f64,
    /// Bytes of what the part has made and is still needed.
    live: u64,
    peak: u64,
}

impl Part<'_, '_> {
    fn run(&mut self, costs: &dyn Costs) -> Option<()> {
        for place in self.first..=self.last {
            let mut slices = 0;
            let mut dying = 0;
            let mut seen: Vec<TensorId> = Vec::new();
            for &id in self.line.groups[place] {
                for (tensor, range, size) in self.backwards.reads(id, self.part) {
                    let Some(value) = self.line.values.get(&tensor) else { continue };
                    let inside = value.made.is_some_and(|made| made >= self.first);
                    if value.made == Some(place) || seen.contains(&tensor) {
                        continue;
                    }
                    seen.push(tensor);
                    let wanted = range
                        .map_or(value.bytes, |range| share(value.bytes, range.end.saturating_sub(range.start), size));
                    let there = if inside { self.piece(tensor)? } else { value.bytes };
                    if wanted < there {
                        slices += wanted;
                        self.time += costs.copy(Bytes(wanted)).0;
                    }
                    if inside && value.last == place {
                        dying += there;
                    }
                }
            }
            let made: u64 = self.line.writes[place].iter().map(|t| self.piece(*t)).sum::<Option<u64>>()?;
            self.peak = self.peak.max(self.live + slices + made);
            self.live = self.live + made - dying.min(self.live + made);
            let portion = self.line.groups[place].last().and_then(|last| self.backwards.of(*last));
            let share = portion.map_or(1.0, |portion| {
                let range = &portion.ranges[self.part];
                (range.end - range.start) as f64 / portion.size as f64
            });
            self.time += costs.part(self.line.groups[place], self.line.times[place], share).0;
        }
        Some(())
    }

    /// Bytes of this part of a tensor that the stretch makes.
    fn piece(&self, tensor: TensorId) -> Option<u64> {
        let producer = self.line.splits.graph.producer(tensor)?;
        if self.line.splits.is_constant(producer) {
            return Some(self.line.values[&tensor].bytes);
        }
        let portion = self.backwards.of(producer)?;
        let range = &portion.ranges[self.part];
        Some(share(self.line.values[&tensor].bytes, range.end - range.start, portion.size))
    }
}

fn share(bytes: u64, of: u64, size: u64) -> u64 {
    (u128::from(bytes) * u128::from(of) / u128::from(size.max(1))) as u64
}
