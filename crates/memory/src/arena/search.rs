//! Canonical branch and bound for one capacity: offsets within it, or a proof that there are none.
//!
//! The method of MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
//! Machine Learning", ASPLOS 2023) with stronger pruning. Buffers are placed bottom-up: the next one is placed at its
//! *release*, the lowest offset that the conflicts placed below it allow, and never under the one placed before it
//! (equal offsets in order of preference), so that each bottom-justified packing is enumerated once. An unplaced
//! buffer that this rule has passed over is *blocked*: it must be placed on top of a conflict that is unplaced too.
//! A placement is pruned when
//!
//! - a section cannot hold its unplaced buffers: stacked in order of release, blocked ones no lower than an unplaced
//!   conflict can end, they exceed the capacity (see [`BranchAndBound::stackable`]);
//! - a blocked buffer has no unplaced conflict left;
//! - an unplaced buffer would have fitted completely below it;
//! - an earlier placement that raised no release failed, since then no other choice can help;
//! - an identical buffer failed in the same position, or the same state failed before.
//!
//! Where no unplaced buffer crosses a section boundary, the two sides are solved independently. The stack is explicit,
//! since the depth is the number of buffers.

use super::{
    failed_states::FailedStates,
    preference::Preference,
    sections::{Number, Sections},
    watch::Watch,
};

/// The maximum length of [`BranchAndBound::waiting`], which has the unplaced buffers of every level: up to half the
/// square of the number of buffers. With what undoes the placements, an entry takes at most 32 bytes.
const MAX_WAITING: usize = 1 << 24;

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Offsets were found: see [`BranchAndBound::offsets`].
    Packed,
    /// There are none within the capacity.
    Impossible,
    /// The budget or [`MAX_WAITING`] was used up.
    Exhausted,
}

/// An unplaced buffer. Sorts in branching order: by release, then by preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Unplaced<N> {
    release: N,
    rank: u32,
    buffer: u32,
}

/// One level of the search.
enum Frame<N> {
    /// The choice of the next buffer.
    Choice(Choice<N>),
    /// Parts that share no section; those before `next` are packed or being packed.
    Split { parts: Vec<Vec<u32>>, next: usize },
}

struct Choice<N> {
    /// Its unplaced buffers are `from..to` in [`BranchAndBound::waiting`].
    from: usize,
    to: usize,
    /// The next one of them to try.
    next: usize,
    /// The lowest possible end of an unplaced buffer: candidates must start below.
    ceiling: N,
    state: u64,
    placed: Option<PlacedBuffer>,
}

#[derive(Clone, Copy)]
struct PlacedBuffer {
    buffer: u32,
    /// The releases it raised are in [`BranchAndBound::raised`] from here on.
    raised: usize,
}

pub(super) struct BranchAndBound<'a, N> {
    sections: &'a Sections<N>,
    preference: Preference,
    capacity: N,
    releases: Vec<N>,
    offsets: Vec<N>,
    placed: Vec<bool>,
    /// The number of unplaced buffers that cross the boundary after each section.
    crossing: Vec<u32>,
    frames: Vec<Frame<N>>,
    waiting: Vec<Unplaced<N>>,
    /// Buffers and their releases before they were raised.
    raised: Vec<(u32, N)>,
    failed: &'a mut FailedStates,
    scratch: Vec<Unplaced<N>>,
    tops: Vec<N>,
    work: u64,
}

impl<'a, N: Number> BranchAndBound<'a, N> {
    /// A search for offsets such that no buffer ends above `capacity`.
    pub fn new(
        sections: &'a Sections<N>,
        preference: Preference,
        capacity: N,
        failed: &'a mut FailedStates,
    ) -> BranchAndBound<'a, N> {
        let n = sections.len() as u32;
        let mut crossing = vec![0; sections.count];
        for buffer in 0..n {
            let span = sections.span(buffer);
            crossing[span.start..span.end - 1].iter_mut().for_each(|c| *c += 1);
        }
        failed.forget();
        BranchAndBound {
            sections,
            preference,
            capacity,
            releases: (0..n).map(|b| sections.fixed(b).unwrap_or_default()).collect(),
            offsets: vec![N::default(); n as usize],
            placed: vec![false; n as usize],
            crossing,
            frames: Vec::new(),
            waiting: Vec::new(),
            raised: Vec::new(),
            failed,
            scratch: Vec::new(),
            tops: vec![N::default(); sections.count],
            work: 0,
        }
    }

    /// The offsets that were found, by buffer; meaningful after [`Verdict::Packed`].
    pub fn offsets(&self) -> &[N] {
        &self.offsets
    }

    /// The number of unplaced buffers examined: the unit of the budget.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Searches until `budget` unplaced buffers have been examined, the levels hold more than [`MAX_WAITING`], or `watch`
    /// stops it.
    pub fn run(&mut self, budget: u64, watch: &mut Watch<'_>) -> Verdict {
        let mut watched = 0;
        self.waiting.extend((0..self.sections.len() as u32).map(|buffer| Unplaced { buffer, ..Unplaced::default() }));
        self.split(0, 0, self.sections.count);
        if self.enter_part() {
            return Verdict::Packed;
        }
        loop {
            let Some(Frame::Choice(choice)) = self.frames.last_mut() else { return Verdict::Impossible };
            if let Some(placed) = choice.placed.take() {
                if placed.raised == self.raised.len() {
                    // It raised no release.
                    choice.next = choice.to;
                }
                self.lift(placed);
                continue;
            }
            let Some(candidate) = self.candidate() else {
                self.fail();
                continue;
            };
            let since = self.work - watched;
            watched = self.work;
            if self.work >= budget || self.waiting.len() > MAX_WAITING || watch.stops(since) {
                return Verdict::Exhausted;
            }
            if self.place(candidate) && self.advance(candidate) && self.succeed() {
                return Verdict::Packed;
            }
        }
    }

    /// The next buffer to try in the choice on top, if one is left.
    fn candidate(&mut self) -> Option<Unplaced<N>> {
        let Some(Frame::Choice(choice)) = self.frames.last_mut() else { return None };
        loop {
            let candidate = *self.waiting[..choice.to].get(choice.next)?;
            if candidate.release >= choice.ceiling {
                return None;
            }
            choice.next += 1;
            let twin = self.sections.twin(candidate.buffer);
            if twin.is_none_or(|twin| self.placed[twin as usize]) {
                return Some(candidate);
            }
        }
    }

    /// Places the candidate of the topmost choice at its release; `false` if a conflict then has no valid offset.
    fn place(&mut self, candidate: Unplaced<N>) -> bool {
        let buffer = candidate.buffer;
        let raised = self.raised.len();
        let mut possible = true;
        self.placed[buffer as usize] = true;
        self.offsets[buffer as usize] = candidate.release;
        let end = candidate.release + self.sections.size(buffer);
        self.sections.conflicts(buffer).for_each(|conflict| {
            let release = &mut self.releases[conflict as usize];
            if self.placed[conflict as usize] || *release >= end {
                return;
            }
            self.raised.push((conflict, *release));
            *release = self.sections.align(conflict, end);
            possible &= *release + self.sections.size(conflict) <= self.capacity;
            possible &= self.sections.fixed(conflict).is_none_or(|fixed| *release <= fixed);
        });
        let span = self.sections.span(buffer);
        self.crossing[span.start..span.end - 1].iter_mut().for_each(|c| *c -= 1);
        if let Some(Frame::Choice(choice)) = self.frames.last_mut() {
            choice.placed = Some(PlacedBuffer { buffer, raised });
            self.work += (choice.to - choice.from) as u64;
        }
        possible
    }

    /// Undoes a placement.
    fn lift(&mut self, placed: PlacedBuffer) {
        self.placed[placed.buffer as usize] = false;
        for (conflict, release) in self.raised.drain(placed.raised..).rev() {
            self.releases[conflict as usize] = release;
        }
        let span = self.sections.span(placed.buffer);
        self.crossing[span.start..span.end - 1].iter_mut().for_each(|c| *c += 1);
    }

    /// Continues after a placement with the next choice, or with independent parts. `true` if no buffer is unplaced.
    fn advance(&mut self, last: Unplaced<N>) -> bool {
        let Some(Frame::Choice(choice)) = self.frames.last() else { return false };
        let begin = choice.to;
        self.scratch.clear();
        for at in choice.from..choice.to {
            let mut waiting = self.waiting[at];
            let release = self.releases[waiting.buffer as usize];
            if release != waiting.release {
                waiting.release = release;
                self.scratch.push(waiting);
            } else if waiting.buffer != last.buffer {
                self.waiting.push(waiting);
            }
        }
        self.scratch.sort_unstable();
        merge(&mut self.waiting, begin, &self.scratch);
        if self.waiting.len() == begin {
            return true;
        }
        let span = self.sections.span(last.buffer);
        if self.crossing[span.start..span.end - 1].contains(&0) {
            self.split(begin, span.start, span.end);
            return self.enter_part();
        }
        self.open(begin, last);
        false
    }

    /// Splits the unplaced buffers from `begin` on at the boundaries within the sections `low..high` that none crosses.
    fn split(&mut self, begin: usize, low: usize, high: usize) {
        let cuts: Vec<usize> = (low..high.saturating_sub(1)).filter(|b| self.crossing[*b] == 0).collect();
        let mut parts = vec![Vec::new(); cuts.len() + 1];
        for waiting in self.waiting.drain(begin..) {
            let start = self.sections.span(waiting.buffer).start;
            parts[cuts.partition_point(|cut| *cut < start)].push(waiting.buffer);
        }
        parts.retain(|part| !part.is_empty());
        self.frames.push(Frame::Split { parts, next: 0 });
    }

    /// Opens the next part of the topmost split, which fails if that part cannot be packed. `true` if no part is left.
    fn enter_part(&mut self) -> bool {
        let Some(Frame::Split { parts, next }) = self.frames.last_mut() else { return false };
        let Some(part) = parts.get_mut(*next) else { return true };
        *next += 1;
        self.sections.sort(part, self.preference, &mut self.tops);
        let begin = self.waiting.len();
        let releases = &self.releases;
        let waiting = |(rank, &buffer): (u32, &u32)| Unplaced { release: releases[buffer as usize], rank, buffer };
        self.waiting.extend((0..).zip(part.iter()).map(waiting));
        self.waiting[begin..].sort_unstable();
        if !self.open(begin, Unplaced::default()) {
            self.drop_splits();
        }
        false
    }

    /// Makes the unplaced buffers from `begin` on the next choice; `false`, and they are dropped, if they cannot be packed.
    fn open(&mut self, begin: usize, last: Unplaced<N>) -> bool {
        let waiting = &self.waiting[begin..];
        let blocked = waiting.partition_point(|w| *w < last);
        let end = |w: &Unplaced<N>| w.release + self.sections.size(w.buffer);
        let ceiling = waiting.iter().map(end).min().unwrap_or_default();
        let mut state = self.failed.state(ceiling.get(), u32::MAX);
        for (at, waiting) in waiting.iter().enumerate() {
            // The release at which a blocked buffer was passed over does not matter.
            let release = if at < blocked { u64::MAX } else { waiting.release.get() };
            state = state.wrapping_add(self.failed.state(release, waiting.buffer));
        }
        if self.failed.contains(state) || !self.stackable(begin, begin + blocked, last.release) {
            self.waiting.truncate(begin);
            return false;
        }
        self.frames.push(Frame::Choice(Choice {
            from: begin,
            to: self.waiting.len(),
            next: begin + blocked,
            ceiling,
            state,
            placed: None,
        }));
        true
    }

    /// Whether every section by itself can hold the unplaced buffers from `begin` on, of which those before `free` are
    /// blocked and none may start under `low`: one machine with release dates, for which the order of release gives the
    /// least makespan.
    fn stackable(&mut self, begin: usize, free: usize, low: N) -> bool {
        self.scratch.clear();
        for blocked in &self.waiting[begin..free] {
            let conflicts = self.sections.conflicts(blocked.buffer).filter(|r| !self.placed[*r as usize]);
            let ends = conflicts.map(|r| self.releases[r as usize].max(low) + self.sections.size(r));
            let Some(end) = ends.min() else { return false };
            let release = self.sections.align(blocked.buffer, end);
            if self.sections.fixed(blocked.buffer).is_some_and(|fixed| release > fixed) {
                return false;
            }
            self.scratch.push(Unplaced { release, ..*blocked });
        }
        self.scratch.sort_unstable();
        let (mut from, mut to) = (usize::MAX, 0);
        for waiting in &self.waiting[begin..] {
            let span = self.sections.span(waiting.buffer);
            (from, to) = (from.min(span.start), to.max(span.end));
        }
        self.tops[from..to].fill(N::default());
        let mut raised = self.scratch.iter().peekable();
        let mut free = self.waiting[free..].iter().peekable();
        loop {
            let next = match (raised.peek(), free.peek()) {
                (Some(a), Some(b)) if a.release <= b.release => raised.next(),
                (_, Some(_)) => free.next(),
                (Some(_), None) => raised.next(),
                (None, None) => break,
            };
            let Some(next) = next else { break };
            let size = self.sections.size(next.buffer);
            for top in &mut self.tops[self.sections.span(next.buffer)] {
                *top = (*top).max(next.release) + size;
            }
        }
        self.tops[from..to].iter().all(|top| *top <= self.capacity)
    }

    /// Fails the topmost choice, and with it the splits that it is part of.
    fn fail(&mut self) {
        if let Some(Frame::Choice(choice)) = self.frames.pop() {
            self.waiting.truncate(choice.from);
            self.failed.insert(choice.state);
        }
        self.drop_splits();
    }

    fn drop_splits(&mut self) {
        while matches!(self.frames.last(), Some(Frame::Split { .. })) {
            self.frames.pop();
        }
    }

    /// The current part is packed: continues with the next part. `true` if all are packed.
    fn succeed(&mut self) -> bool {
        loop {
            match self.frames.last_mut() {
                None => return true,
                Some(Frame::Choice(choice)) => {
                    let (placed, from) = (choice.placed.take(), choice.from);
                    self.frames.pop();
                    self.waiting.truncate(from);
                    if let Some(placed) = placed {
                        self.lift(placed);
                    }
                }
                Some(Frame::Split { .. }) => {
                    if !self.enter_part() {
                        return false;
                    }
                    self.frames.pop();
                }
            }
        }
    }
}

/// Merges sorted `new` into the end of `list` that begins at `from` and is sorted too.
fn merge<T: Ord + Copy>(list: &mut Vec<T>, from: usize, new: &[T]) {
    let mut old = list.len();
    list.extend_from_slice(new);
    let (mut write, mut left) = (list.len(), new.len());
    while left > 0 {
        write -= 1;
        if old > from && list[old - 1] > new[left - 1] {
            list[write] = list[old - 1];
            old -= 1;
        } else {
            list[write] = new[left - 1];
            left -= 1;
        }
    }
}
