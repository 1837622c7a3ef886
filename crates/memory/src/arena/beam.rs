//! Beam search over partial packings with a skyline: low packings without proof, also where a depth-first search cannot
//! revise its first choices.
//!
//! The beam search of strip packing, with fixed positions on the axis of time. A partial packing is its skyline, the top
//! of every section, and the set of buffers that are placed. Only *valleys* of the skyline are filled, since what lies in a
//! valley is independent of all else until it is full; first the one that the fewest buffers fit into. The first
//! section of a valley is either taken by a buffer that begins there and ends in the valley, or wasted up to the lower
//! wall. Waste that no buffer can avoid is charged at once.
//!
//! Partial packings with about the same area below the skyline compete. Those survive that waste least where it matters,
//! with the fewest steps: the rank is the sum over all sections of a high power of top plus unplaced load, a lower bound on
//! the height.

use std::{cmp::Reverse, ops::Range};

use super::{
    hash::mix,
    sections::{Number, Sections},
    skyline::{Valley, run_end, run_start, steps, valley},
    watch::Watch,
};

/// How partial packings are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranking {
    /// The power of the bound of a section.
    power: i32,
    /// The weight of a step of the skyline, relative to a section whose bound is the bound of all.
    step: f64,
    /// Whether time runs backwards.
    mirrored: bool,
}

/// No ranking is best for every problem. Few steps are preferred the more, the less room there is.
const RANKINGS: &[Ranking] = &[
    Ranking { power: 16, step: 0.1, mirrored: false },
    Ranking { power: 4, step: 0.02, mirrored: true },
    Ranking { power: 16, step: 0.3, mirrored: true },
    Ranking { power: 16, step: 0.02, mirrored: false },
    Ranking { power: 16, step: 0.1, mirrored: true },
    Ranking { power: 4, step: 0.02, mirrored: false },
    Ranking { power: 16, step: 0.3, mirrored: false },
    Ranking { power: 16, step: 0.02, mirrored: true },
];

/// Survivors of each level in the first search with each ranking; doubled after every ranking has been tried.
const FIRST_WIDTH: usize = 8;
/// Partial packings that wait at a level, in multiples of those that survive, until they are thinned out.
const CROWD: usize = 2;
/// Levels, at most one for each buffer.
const LEVELS: usize = 512;
/// Bytes that the partial packings of all levels may take.
const MEMORY: usize = 512 << 20;
/// Sections that are copied or compared in the time in which the exact search examines one buffer.
const SECTIONS_PER_WORK: u64 = 12;
/// Partial packings that are made for each placement of each survivor.
const ALTERNATIVES: u64 = 24;
/// The time that a partial packing takes in any case, in sections.
const OVERHEAD: u64 = 200;

/// The ranking and the width of the search number `turn`; `None` if a wider search would take too much memory.
pub(super) fn setting<N: Number>(sections: &Sections<N>, turn: usize) -> Option<(Ranking, usize)> {
    let partial = sections.count * 2 * size_of::<N>() + sections.len() / 8 + size_of::<Partial<N>>();
    let widest = MEMORY / (partial * sections.len().min(LEVELS) * CROWD).max(1);
    let width = FIRST_WIDTH.checked_shl((turn / RANKINGS.len()) as u32)?;
    (width <= widest).then(|| (RANKINGS[turn % RANKINGS.len()], width))
}

/// The work of a search, about: each placement is tried with some alternatives in each survivor.
pub(super) fn expected_work<N: Number>(sections: &Sections<N>, width: usize) -> u64 {
    let partials = sections.len() as u64 * width as u64 * ALTERNATIVES;
    partials.saturating_mul(sections.count as u64 + OVERHEAD) / SECTIONS_PER_WORK
}

/// A search on one problem.
pub(super) struct Beam<'a, N> {
    sections: &'a Sections<N>,
    ranking: Ranking,
    /// The sections of each buffer's lifetime, mirrored if the ranking is.
    spans: Vec<Range<usize>>,
    /// For each section the buffers that begin in it, the largest area first.
    births: Vec<Vec<u32>>,
    /// The largest load.
    load: u64,
    /// Packings of this height or more are no improvement.
    height: u64,
    /// The placements that led to the partial packings that survived.
    trail: Vec<Placed<N>>,
    /// The last placement of the best packing.
    best: Option<Placed<N>>,
    work: u64,
}

/// One placement, and the one before it in the trail.
#[derive(Clone, Copy)]
struct Placed<N> {
    before: Option<u32>,
    buffer: u32,
    offset: N,
}

/// A partial packing.
#[derive(Clone)]
struct Partial<N> {
    tops: Vec<N>,
    /// The unplaced load of each section.
    rest: Vec<N>,
    /// A bit for each buffer that is placed.
    placed: Vec<u64>,
    /// The number of unplaced buffers.
    left: usize,
    /// Sum of the tops.
    area: u128,
    /// The highest end of a buffer.
    top: u64,
    /// Sum of the powers of the bounds.
    waste: f64,
    /// Hash of the set of placed buffers.
    set: u64,
    /// Its last placement, unless that is in the trail already.
    last: Option<Placed<N>>,
    /// The last of its placements in the trail.
    trail: Option<u32>,
    /// The first section of the valley to fill.
    valley: usize,
    /// The lowest survive.
    rank: f64,
}

impl<N: Number> Partial<N> {
    fn has(&self, buffer: u32) -> bool {
        self.placed[buffer as usize / 64] >> (buffer % 64) & 1 == 1
    }
}

impl<'a, N: Number> Beam<'a, N> {
    /// A search for packings below `height`. No buffer may have a fixed offset.
    pub fn new(sections: &'a Sections<N>, ranking: Ranking, height: u64) -> Beam<'a, N> {
        let count = sections.count;
        let span = |buffer: u32| match (sections.span(buffer), ranking.mirrored) {
            (span, false) => span,
            (span, true) => count - span.end..count - span.start,
        };
        let spans: Vec<Range<usize>> = (0..sections.len() as u32).map(span).collect();
        let mut births: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (buffer, span) in (0..).zip(&spans) {
            births[span.start].push(buffer);
        }
        let area = |buffer: u32| sections.size(buffer).get() * spans[buffer as usize].len() as u64;
        births.iter_mut().for_each(|list| list.sort_by_key(|&buffer| (Reverse(area(buffer)), buffer)));
        Beam { sections, ranking, spans, births, load: 1, height, trail: Vec::new(), best: None, work: 0 }
    }

    /// In the unit of the exact search.
    pub fn work(&self) -> u64 {
        self.work / SECTIONS_PER_WORK
    }

    /// The offsets of the lowest packing that is found with `width` survivors at each level, until `budget` is used up
    /// or `watch` stops it.
    pub fn run(&mut self, width: usize, budget: u64, watch: &mut Watch<'_>) -> Option<Vec<N>> {
        let start = self.start();
        let levels = self.sections.len().min(LEVELS);
        let total = (u128::from(self.height) * self.sections.count as u128).max(1);
        let level = |area: u128| (area * levels as u128 / total).min(levels as u128) as usize;
        let mut waiting: Vec<Vec<Partial<N>>> = vec![Vec::new(); levels + 1];
        self.keep(start, &mut |partial| waiting[0].push(partial));
        let mut watched = 0;
        for at in 0..waiting.len() {
            while !waiting[at].is_empty() && self.work() < budget && !watch.stops(self.work() - watched) {
                watched = self.work();
                let mut survivors = std::mem::take(&mut waiting[at]);
                select(&mut survivors, width);
                for partial in survivors {
                    self.extend(partial, &mut |next: Partial<N>| {
                        let to = &mut waiting[level(next.area).max(at)];
                        to.push(next);
                        if to.len() > width * CROWD {
                            select(to, width);
                        }
                    });
                }
            }
        }
        self.best.map(|last| self.offsets(last))
    }

    /// No buffer placed.
    fn start(&mut self) -> Partial<N> {
        let mut rest = vec![N::default(); self.sections.count];
        for (buffer, span) in (0..).zip(&self.spans) {
            rest[span.clone()].iter_mut().for_each(|load| *load = *load + self.sections.size(buffer));
        }
        self.load = rest.iter().max().map_or(1, |load| load.get().max(1));
        Partial {
            tops: vec![N::default(); self.sections.count],
            waste: rest.iter().map(|load| self.power(load.get())).sum(),
            rest,
            placed: vec![0; self.sections.len().div_ceil(64)],
            left: self.sections.len(),
            area: 0,
            top: 0,
            set: 0,
            last: None,
            trail: None,
            valley: 0,
            rank: 0.0,
        }
    }

    /// A bound on the height, as it counts in the rank.
    fn power(&self, bound: u64) -> f64 {
        (bound as f64 / self.load as f64).powi(self.ranking.power)
    }

    /// What follows from a partial packing: a buffer more in the valley, or the waste of its first section.
    fn extend(&mut self, mut partial: Partial<N>, keep: &mut dyn FnMut(Partial<N>)) {
        let Some(valley) = valley(&partial.tops, partial.valley) else { return };
        if let Some(last) = partial.last.take() {
            partial.trail = Some(self.trail.len() as u32);
            self.trail.push(last);
        }
        for at in 0..self.births[valley.span.start].len() {
            let buffer = self.births[valley.span.start][at];
            if self.fits(&partial, buffer, &valley) {
                let mut next = partial.clone();
                self.place(&mut next, buffer, valley.floor);
                self.keep(next, keep);
            }
        }
        if self.waste(&mut partial, &valley) {
            self.keep(partial, keep);
        }
    }

    /// Keeps a partial packing that may become better than the best one, or records it if it is complete.
    fn keep(&mut self, mut partial: Partial<N>, keep: &mut dyn FnMut(Partial<N>)) {
        self.work += self.sections.count as u64 + OVERHEAD;
        if partial.top >= self.height {
            return;
        }
        if partial.left == 0 {
            (self.height, self.best) = (partial.top, partial.last);
            return;
        }
        if let Some(valley) = self.settle(&mut partial) {
            partial.valley = valley;
            partial.rank = partial.waste + self.ranking.step * steps(&partial.tops) as f64;
            keep(partial);
        }
    }

    /// Wastes what no buffer fits into, and returns where the valley begins that the fewest fit into; `None` if the waste
    /// makes the packing too high.
    fn settle(&mut self, partial: &mut Partial<N>) -> Option<usize> {
        let mut best = None;
        let mut at = 0;
        while at < self.sections.count {
            let Some(valley) = valley(&partial.tops, at) else {
                at = run_end(&partial.tops, at);
                continue;
            };
            self.work += self.births[at].len() as u64;
            let fits = self.births[at].iter().filter(|&&buffer| self.fits(partial, buffer, &valley)).count();
            if fits > 0 {
                let rank = (fits, valley.floor, at);
                best = Some(best.map_or(rank, |best| rank.min(best)));
                at = valley.span.end;
            } else if self.waste(partial, &valley) {
                at = run_start(&partial.tops, at);
            } else {
                return None;
            }
        }
        best.map(|best| best.2)
    }

    /// Whether an unplaced buffer ends in the valley that it begins in, and no identical one comes first.
    fn fits(&self, partial: &Partial<N>, buffer: u32, valley: &Valley<N>) -> bool {
        !partial.has(buffer)
            && self.spans[buffer as usize].end <= valley.span.end
            && self.sections.twin(buffer).is_none_or(|twin| partial.has(twin))
    }

    fn place(&mut self, partial: &mut Partial<N>, buffer: u32, floor: N) {
        let size = self.sections.size(buffer);
        let offset = self.sections.align(buffer, floor);
        let end = offset + size;
        let span = self.spans[buffer as usize].clone();
        partial.area += u128::from((end - floor).get()) * span.len() as u128;
        partial.tops[span.clone()].fill(end);
        for rest in &mut partial.rest[span] {
            if offset != floor {
                partial.waste += self.power((offset + *rest).get()) - self.power((floor + *rest).get());
            }
            *rest = *rest - size;
        }
        partial.placed[buffer as usize / 64] |= 1 << (buffer % 64);
        partial.left -= 1;
        partial.top = partial.top.max(end.get());
        partial.set = partial.set.wrapping_add(mix(u64::from(buffer)));
        partial.last = Some(Placed { before: partial.trail, buffer, offset });
    }

    /// Raises the first sections of a valley, up to the next in which a buffer begins that fits, to the lower wall; false if
    /// that makes the packing too high.
    fn waste(&self, partial: &mut Partial<N>, valley: &Valley<N>) -> bool {
        let (mut to, mut least) = (valley.span.start + 1, None);
        while to < valley.span.end {
            let fits = self.births[to].iter().filter(|&&buffer| self.fits(partial, buffer, valley));
            least = fits.map(|&buffer| self.sections.size(buffer)).min();
            if least.is_some() {
                break;
            }
            to += 1;
        }
        // Between the ends of time there is no wall; what begins first may lie over what begins next.
        let Some(wall) = valley.wall.or(least.map(|size| valley.floor + size)) else { return false };
        for section in valley.span.start..to {
            let rest = partial.rest[section];
            if rest > N::default() {
                let after = (wall + rest).get();
                if after >= self.height {
                    return false;
                }
                partial.waste += self.power(after) - self.power((valley.floor + rest).get());
            }
            partial.tops[section] = wall;
        }
        partial.area += u128::from((wall - valley.floor).get()) * (to - valley.span.start) as u128;
        true
    }

    /// The offsets of the placements up to `last`.
    fn offsets(&self, last: Placed<N>) -> Vec<N> {
        let mut offsets = vec![N::default(); self.sections.len()];
        let mut at = Some(last);
        while let Some(placed) = at {
            offsets[placed.buffer as usize] = placed.offset;
            at = placed.before.map(|before| self.trail[before as usize]);
        }
        offsets
    }
}

/// Keeps the `width` lowest in rank, those with the same buffers and area once.
fn select<N>(partials: &mut Vec<Partial<N>>, width: usize) {
    partials.sort_by(|a, b| a.rank.total_cmp(&b.rank).then(a.set.cmp(&b.set)).then(a.area.cmp(&b.area)));
    partials.dedup_by(|a, b| (a.set, a.area) == (b.set, b.area));
    partials.truncate(width);
}
