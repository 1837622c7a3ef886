//! Canonical branch and bound for one capacity: either offsets within it, or the proof that there are none.
//!
//! The published idea of MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
//! Machine Learning", ASPLOS 2023) with stronger inference. Buffers are placed bottom-up: the next one lies at its
//! *release*, the lowest offset that the rivals placed below it allow, and never under the one placed before it
//! (equal offsets in order of preference), so that each packing in which nothing can sink is met once. A waiting
//! buffer that this rule has passed over is *blocked*: it must come to lie upon a rival that still waits.
//! A placement is given up when
//!
//! - a section cannot hold its waiting buffers any more: stacked in order of release, the blocked ones no sooner
//!   than a waiting rival can end, they pass the capacity (see [`Search::stackable`]);
//! - a blocked buffer has no waiting rival left;
//! - a waiting buffer would have fitted whole under it;
//! - a placement that touched no other buffer failed before, since then no other choice can help;
//! - a twin of the buffer failed in its place, or the same state failed before.
//!
//! Where no waiting buffer crosses a boundary between sections, the sides are solved apart. The search keeps its own
//! stack, since its depth is the number of buffers.

use super::{
    failed::Failed,
    preference::Preference,
    sections::{Number, Sections},
};

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Offsets were found: see [`Search::offsets`].
    Packed,
    /// There are none within the capacity.
    Impossible,
    /// The budget was used up.
    Spent,
}

/// An unplaced buffer. Sorts in branching order: by release, then by preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Waiting<N> {
    release: N,
    rank: u32,
    buffer: u32,
}

/// What is decided at one depth of the search.
enum Frame<N> {
    /// Which buffer comes next.
    Choice(Choice<N>),
    /// Parts that share no section; those before `next` are packed or being packed.
    Split { parts: Vec<Vec<u32>>, next: usize },
}

struct Choice<N> {
    /// Its waiting buffers are `from..to` in [`Search::waiting`].
    from: usize,
    to: usize,
    /// The next one of them to try.
    next: usize,
    /// A waiting buffer could end here: candidates must start below.
    ceiling: N,
    state: u64,
    placed: Option<Placed>,
}

#[derive(Clone, Copy)]
struct Placed {
    buffer: u32,
    /// The releases it raised are in [`Search::raised`] from here on.
    raised: usize,
}

pub(super) struct Search<'a, N> {
    sections: &'a Sections<N>,
    preference: Preference,
    capacity: N,
    releases: Vec<N>,
    offsets: Vec<N>,
    placed: Vec<bool>,
    /// For the boundary after each section, how many waiting buffers cross it.
    crossing: Vec<u32>,
    frames: Vec<Frame<N>>,
    waiting: Vec<Waiting<N>>,
    /// Buffers and their releases before they were raised.
    raised: Vec<(u32, N)>,
    failed: &'a mut Failed,
    scratch: Vec<Waiting<N>>,
    tops: Vec<N>,
    work: u64,
}

impl<'a, N: Number> Search<'a, N> {
    /// A search for offsets such that no buffer ends above `capacity`.
    pub fn new(
        sections: &'a Sections<N>,
        preference: Preference,
        capacity: N,
        failed: &'a mut Failed,
    ) -> Search<'a, N> {
        let n = sections.len() as u32;
        let mut crossing = vec![0; sections.count];
        for buffer in 0..n {
            let span = sections.span(buffer);
            crossing[span.start..span.end - 1].iter_mut().for_each(|c| *c += 1);
        }
        failed.forget();
        Search {
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

    /// How many waiting buffers were looked at: what the budget is counted in.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Searches until `budget` waiting buffers were looked at.
    pub fn run(&mut self, budget: u64) -> Verdict {
        self.waiting.extend((0..self.sections.len() as u32).map(|buffer| Waiting { buffer, ..Waiting::default() }));
        self.split(0, 0, self.sections.count);
        if self.enter_part() {
            return Verdict::Packed;
        }
        loop {
            let Some(Frame::Choice(choice)) = self.frames.last_mut() else { return Verdict::Impossible };
            if let Some(placed) = choice.placed.take() {
                if placed.raised == self.raised.len() {
                    // It touched no other buffer.
                    choice.next = choice.to;
                }
                self.lift(placed);
                continue;
            }
            let Some(candidate) = self.candidate() else {
                self.fail();
                continue;
            };
            if self.work >= budget {
                return Verdict::Spent;
            }
            if self.place(candidate) && self.advance(candidate) && self.succeed() {
                return Verdict::Packed;
            }
        }
    }

    /// The next buffer to try in the choice on top, if one is left.
    fn candidate(&mut self) -> Option<Waiting<N>> {
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

    /// Puts the candidate of the choice on top at its release. `false` if a rival can lie nowhere now.
    fn place(&mut self, candidate: Waiting<N>) -> bool {
        let buffer = candidate.buffer;
        let raised = self.raised.len();
        let mut possible = true;
        self.placed[buffer as usize] = true;
        self.offsets[buffer as usize] = candidate.release;
        let end = candidate.release + self.sections.size(buffer);
        for &rival in self.sections.rivals(buffer) {
            let release = &mut self.releases[rival as usize];
            if self.placed[rival as usize] || *release >= end {
                continue;
            }
            self.raised.push((rival, *release));
            *release = self.sections.align(rival, end);
            possible &= *release + self.sections.size(rival) <= self.capacity;
            possible &= self.sections.fixed(rival).is_none_or(|fixed| *release <= fixed);
        }
        let span = self.sections.span(buffer);
        self.crossing[span.start..span.end - 1].iter_mut().for_each(|c| *c -= 1);
        if let Some(Frame::Choice(choice)) = self.frames.last_mut() {
            choice.placed = Some(Placed { buffer, raised });
            self.work += (choice.to - choice.from) as u64;
        }
        possible
    }

    /// Takes a placement back.
    fn lift(&mut self, placed: Placed) {
        self.placed[placed.buffer as usize] = false;
        for (rival, release) in self.raised.drain(placed.raised..).rev() {
            self.releases[rival as usize] = release;
        }
        let span = self.sections.span(placed.buffer);
        self.crossing[span.start..span.end - 1].iter_mut().for_each(|c| *c += 1);
    }

    /// Goes on after a placement: with the next choice, or with the parts it leaves. `true` if nothing waits.
    fn advance(&mut self, last: Waiting<N>) -> bool {
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

    /// Takes the waiting buffers from `begin` on apart where none crosses a boundary within the sections `low..high`.
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

    /// Opens the next part of the split on top, which has failed if that part cannot be packed. `true` if no part is left.
    fn enter_part(&mut self) -> bool {
        let Some(Frame::Split { parts, next }) = self.frames.last_mut() else { return false };
        let Some(part) = parts.get_mut(*next) else { return true };
        *next += 1;
        self.sections.sort(part, self.preference, &mut self.tops);
        let begin = self.waiting.len();
        let releases = &self.releases;
        let waiting = |(rank, &buffer): (u32, &u32)| Waiting { release: releases[buffer as usize], rank, buffer };
        self.waiting.extend((0..).zip(part.iter()).map(waiting));
        self.waiting[begin..].sort_unstable();
        if !self.open(begin, Waiting::default()) {
            self.drop_splits();
        }
        false
    }

    /// Makes the waiting buffers from `begin` on the next choice. `false`, and they are dropped, if they cannot be packed.
    fn open(&mut self, begin: usize, last: Waiting<N>) -> bool {
        let waiting = &self.waiting[begin..];
        let blocked = waiting.partition_point(|w| *w < last);
        let end = |w: &Waiting<N>| w.release + self.sections.size(w.buffer);
        let ceiling = waiting.iter().map(end).min().unwrap_or_default();
        let mut state = self.failed.state(ceiling.get(), u32::MAX);
        for (at, waiting) in waiting.iter().enumerate() {
            // Where a blocked buffer was passed over makes no difference.
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

    /// Whether every section on its own can hold the waiting buffers from `begin` on, of which those before `free` are
    /// blocked and none may start under `low`: one machine with release dates, for which the order of release gives the
    /// least makespan.
    fn stackable(&mut self, begin: usize, free: usize, low: N) -> bool {
        self.scratch.clear();
        for blocked in &self.waiting[begin..free] {
            let rivals = self.sections.rivals(blocked.buffer).iter().filter(|r| !self.placed[**r as usize]);
            let ends = rivals.map(|&r| self.releases[r as usize].max(low) + self.sections.size(r));
            let Some(end) = ends.min() else { return false };
            let release = self.sections.align(blocked.buffer, end);
            if self.sections.fixed(blocked.buffer).is_some_and(|fixed| release > fixed) {
                return false;
            }
            self.scratch.push(Waiting { release, ..*blocked });
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

    /// Gives up the choice on top, and with it the splits it is a part of.
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

    /// The part being solved is packed: goes on with the next part. `true` if everything is packed.
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
