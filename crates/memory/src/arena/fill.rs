//! Packings for any number of buffers: the lowest valley of the skyline is filled, again and again.
//!
//! The best-fit heuristic for strip packing (Burke, Kendall, Whitwell, "A New Placement Heuristic for the Orthogonal
//! Stock-Cutting Problem", Operations Research 2004), with fixed positions on the axis of time. The lowest valley takes
//! the most desirable of the buffers that live within it; if there is none, it is raised to its lower wall. Every step
//! places a buffer or removes a run of the skyline, so their number is linear in that of the buffers, and what is under
//! the skyline is never looked at again.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{candidates::Candidates, problem::Problem, watch::Watch};

/// What makes a buffer desirable, and where in a valley it is looked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filling {
    /// Powers of the size, the number of steps and the number of sections of the lifetime: the key is their product.
    powers: [f64; 3],
    within: Within,
}

/// The part of a valley that is filled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Anywhere,
    /// What begins where the valley begins comes before all else, so that no narrow gap is left there.
    FromStart,
}

/// None is best for every problem. On 20 000 pieces of a rectangle they end from 19 % to 32 % above the bound, those by the
/// number of sections and size together the lowest; on lifetimes as in training, by steps or size nearly at it.
pub(super) const FILLINGS: &[Filling] = &[
    Filling { powers: [0.0, 1.0, 0.0], within: Within::Anywhere },
    Filling { powers: [1.0, 0.0, 0.0], within: Within::Anywhere },
    Filling { powers: [1.0, 0.0, 1.0], within: Within::FromStart },
    Filling { powers: [1.0, 1.0, 0.0], within: Within::Anywhere },
    Filling { powers: [1.0, 0.0, 1.0], within: Within::Anywhere },
    Filling { powers: [1.0, 0.5, 0.0], within: Within::FromStart },
    Filling { powers: [0.5, 1.0, 0.0], within: Within::FromStart },
    Filling { powers: [0.0, 1.0, 0.0], within: Within::FromStart },
    Filling { powers: [1.0, 0.0, 0.0], within: Within::FromStart },
    Filling { powers: [0.5, 1.0, 0.0], within: Within::Anywhere },
    Filling { powers: [0.0, 0.0, 1.0], within: Within::FromStart },
];

/// Visits of the tree of candidates that take the time in which the exact search examines one buffer.
const VISITS_PER_WORK: u64 = 2;

/// Packs the buffers by `filling`. Returns the offsets, and the work in units of [`super::PackOptions::effort`].
pub(super) fn fill(problem: &Problem<'_>, filling: Filling, watch: &mut Watch<'_>) -> (Vec<u64>, u64) {
    let timeline = problem.timeline();
    let mut offsets: Vec<u64> = problem.buffers.iter().map(|b| b.fixed.map_or(0, |fixed| fixed.0)).collect();
    let count = problem.born().len();
    let mut candidates = Candidates::new((0..count).map(|at| {
        let (buffer, span) = (problem.at(at), timeline.span(at as u32));
        let measures = [buffer.size.0 as f64, (buffer.upper - buffer.lower) as f64, span.len() as f64];
        let key = measures.iter().zip(filling.powers).map(|(measure, power)| measure.powf(power)).product();
        (key, span.end as u32)
    }));
    let fixed = (0..count).filter(|&at| problem.at(at).fixed.is_some());
    fixed.clone().for_each(|at| candidates.remove(at));
    let mut left = count - fixed.count();
    let mut skyline = Skyline::new(&floors(problem));
    let mut visits = 0;
    while left > 0 {
        let Some(Run { floor, start, end }) = skyline.lowest() else { break };
        let mut find = |sections| {
            let (found, visited) = candidates.best(timeline.beginning(sections), end as u32);
            visits += visited as u64 + 1;
            found
        };
        let at_start = if filling.within == Within::FromStart { find(start..start + 1) } else { None };
        let Some(at) = at_start.or_else(|| find(start..end)) else {
            skyline.raise(start);
            continue;
        };
        candidates.remove(at);
        left -= 1;
        let (buffer, span) = (problem.at(at), timeline.span(at as u32));
        let offset = floor.next_multiple_of(buffer.align);
        offsets[problem.born()[at] as usize] = offset;
        skyline.cover(start, Run { floor: offset + buffer.size.0, start: span.start, end: span.end });
    }
    let work = visits / VISITS_PER_WORK;
    watch.stops(work);
    (offsets, work)
}

/// For each section the highest end of a buffer with a fixed offset.
fn floors(problem: &Problem<'_>) -> Vec<u64> {
    let timeline = problem.timeline();
    let mut live: BinaryHeap<(u64, usize)> = BinaryHeap::new();
    let floor = |section: usize| {
        for at in timeline.beginning(section..section + 1) {
            let buffer = problem.at(at);
            live.extend(buffer.fixed.map(|fixed| (fixed.0 + buffer.size.0, timeline.span(at as u32).end)));
        }
        while live.peek().is_some_and(|top| top.1 <= section) {
            live.pop();
        }
        live.peek().map_or(0, |top| top.0)
    };
    (0..timeline.sections()).map(floor).collect()
}

/// Sections of equal tops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    floor: u64,
    start: usize,
    end: usize,
}

/// The runs of a skyline, of which the lowest is found at once. A run is known by its first section.
struct Skyline {
    /// For each section in which a run begins, the end and the floor of the run, and the beginning of the one before it.
    ends: Vec<u32>,
    floors: Vec<u64>,
    befores: Vec<u32>,
    /// Runs by floor, among them some that are no more.
    queue: BinaryHeap<Reverse<(u64, usize, usize)>>,
}

/// The end of a section in which no run begins, and what is before the first run.
const NO_RUN: u32 = u32::MAX;

impl Skyline {
    fn new(floors: &[u64]) -> Skyline {
        let count = floors.len();
        let mut made = Skyline {
            ends: vec![NO_RUN; count],
            floors: vec![0; count],
            befores: vec![NO_RUN; count],
            queue: BinaryHeap::new(),
        };
        let mut start = 0;
        for run in floors.chunk_by(|a, b| a == b) {
            let end = start + run.len();
            made.put(Run { floor: run[0], start, end });
            start = end;
        }
        made
    }

    /// The lowest run, the earliest of several.
    fn lowest(&mut self) -> Option<Run> {
        while let Some(Reverse((floor, start, end))) = self.queue.pop() {
            if self.ends[start] as usize == end && self.floors[start] == floor {
                return Some(Run { floor, start, end });
            }
        }
        None
    }

    /// Raises the run at `start`, the lowest one, to the lower of the runs next to it, and makes it one with that.
    fn raise(&mut self, start: usize) {
        let end = self.ends[start] as usize;
        let before = self.before(start).map(|before| self.floors[before]);
        let after = (end < self.ends.len()).then(|| self.floors[end]);
        if let Some(floor) = before.into_iter().chain(after).min() {
            self.join(Run { floor, start, end });
        }
    }

    /// Puts `top` on a part of the run at `start`.
    fn cover(&mut self, start: usize, top: Run) {
        let (floor, end) = (self.floors[start], self.ends[start] as usize);
        self.ends[start] = NO_RUN;
        if start < top.start {
            self.put(Run { floor, start, end: top.start });
            self.befores[top.start] = start as u32;
        }
        if top.end < end {
            self.befores[top.end] = top.start as u32;
            self.put(Run { floor, start: top.end, end });
        }
        self.join(top);
    }

    /// Puts a run where there was one or a hole, as one with those next to it of the same floor.
    fn join(&mut self, run: Run) {
        let Run { floor, mut start, mut end } = run;
        if end < self.ends.len() && self.floors[end] == floor {
            let next = self.ends[end] as usize;
            self.ends[end] = NO_RUN;
            end = next;
        }
        if let Some(before) = self.before(start).filter(|&before| self.floors[before] == floor) {
            self.ends[start] = NO_RUN;
            start = before;
        }
        self.put(Run { floor, start, end });
    }

    fn put(&mut self, run: Run) {
        self.ends[run.start] = run.end as u32;
        self.floors[run.start] = run.floor;
        if run.end < self.ends.len() {
            self.befores[run.end] = run.start as u32;
        }
        self.queue.push(Reverse((run.floor, run.start, run.end)));
    }

    fn before(&self, start: usize) -> Option<usize> {
        Some(self.befores[start]).filter(|before| *before != NO_RUN).map(|before| before as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::{Buffer, Packing, check};
    use edgecut_graph::units::Bytes;

    fn filled(buffers: &[Buffer], filling: Filling) -> u64 {
        let problem = Problem::new(buffers).unwrap();
        let mut watcher = |_| ControlFlow::Continue(());
        let (offsets, _) = fill(&problem, filling, &mut Watch::new(&mut watcher, 0));
        let height = problem.height(&offsets);
        let offsets = offsets.into_iter().map(Bytes).collect();
        let packing = Packing { offsets, height: Bytes(height), bound: crate::bound::arena(buffers) };
        assert_eq!(check::packing(buffers, &packing), Ok(()));
        height
    }

    #[test]
    fn fillings_never_overlap_whatever_is_fixed_or_aligned() {
        let mut rng = fastrand::Rng::with_seed(5);
        for round in 0..300 {
            let mut buffers: Vec<Buffer> = Vec::new();
            for at in 0..rng.u64(0..60) {
                let lower = rng.u64(0..30);
                let buffer =
                    Buffer::new(lower, lower + rng.u64(0..12), Bytes(rng.u64(0..50))).align(1 << rng.u32(0..4));
                // Far from each other, so that they do not overlap.
                let fixed = Bytes(1024 * at);
                buffers.push(if round % 3 == 0 && rng.bool() { buffer.fixed(fixed) } else { buffer });
            }
            for &filling in FILLINGS {
                filled(&buffers, filling);
            }
        }
    }

    #[test]
    fn nested_lifetimes_are_stacked_without_a_gap() {
        let nested: Vec<Buffer> = (0..50).map(|k| Buffer::new(k, 101 - k, Bytes(k + 1))).collect();
        assert_eq!(filled(&nested, FILLINGS[0]), 50 * 51 / 2);
    }
}
