//! The search: from everything kept in program order down to ever lower limits, each time by the change that
//! removes the most overload for its time; then local search at every limit.
//!
//! The limits it goes through do not depend on the one that is wanted, and all good schedules on the way are kept:
//! so a looser limit never gives a worse result. The budget is in steps looked at, not in seconds.

use std::time::Instant;

use fastrand::Rng;

use super::{
    candidates::{Neighbours, candidates, places, to_hold},
    choice::{Choice, Mode, Move, Transfer},
    front::Front,
    unfold::{Figures, Unfold},
};

/// Each limit is this part of the peak before it.
const NEXT_LIMIT: f64 = 0.97;
/// Changes of each kind that are tried for one greedy step.
const TRIED: usize = 16;

/// One search on one program.
pub struct Search<'a, 'p> {
    pub unfold: &'a mut Unfold<'p>,
    pub front: &'a mut Front,
    pub rng: Rng,
    /// Steps to look at.
    pub budget: u64,
    pub cut_off: Option<Instant>,
    neighbours: Neighbours,
    /// Choices looked at.
    pub evaluated: u64,
    /// Time of the program as it was given.
    time: f64,
    peak: u64,
}

struct State {
    choice: Choice,
    figures: Figures,
}

impl<'a, 'p> Search<'a, 'p> {
    pub fn new(unfold: &'a mut Unfold<'p>, front: &'a mut Front, seed: u64, budget: u64) -> Search<'a, 'p> {
        let program = unfold.program();
        Search {
            neighbours: Neighbours::of(program),
            rng: Rng::with_seed(seed),
            budget: unfold.work + budget,
            cut_off: None,
            evaluated: 0,
            time: program.time(),
            peak: 0,
            unfold,
            front,
        }
    }

    /// Goes down once without and once with local search.
    pub fn run(&mut self) {
        let program = self.unfold.program();
        let start = Choice::keep_all(program);
        let Some(figures) = self.unfold.figures(&start, u64::MAX) else { return };
        self.peak = figures.peak;
        self.front.offer(&figures, &start);
        let before = self.unfold.work;
        let limits = self.descend(start.clone(), 0).max(1);
        let spent = self.unfold.work - before;
        let left = self.budget.saturating_sub(self.unfold.work);
        let share = left.saturating_sub(spent * 2) / limits / 2;
        self.descend(start, share);
        self.climb(share);
    }

    fn over(&self) -> bool {
        self.unfold.work >= self.budget || self.cut_off.is_some_and(|at| Instant::now() >= at)
    }

    /// Lowers the limit until nothing helps any more; returns how many limits were met.
    fn descend(&mut self, start: Choice, refine: u64) -> u64 {
        let mut met = 0;
        let Some(figures) = self.unfold.figures(&start, u64::MAX) else { return 0 };
        let mut state = State { choice: start, figures };
        let floor = self.unfold.program().least_peak();
        while state.figures.peak > floor && !self.over() {
            let limit = ((state.figures.peak as f64 * NEXT_LIMIT) as u64).max(floor);
            if !self.reduce(&mut state, limit) {
                break;
            }
            met += 1;
            if refine > 0 {
                self.refine(&mut state, limit, refine);
            }
            if state.figures.time > self.time * 4.0 {
                break;
            }
        }
        met
    }

    /// From the smallest schedules to the largest ones: what is needed for a tight limit may be dropped for a looser one.
    fn climb(&mut self, refine: u64) {
        let mut limits: Vec<u64> = Vec::new();
        let mut limit = self.front.points().first().map_or(u64::MAX, |p| p.peak) as f64;
        while (limit as u64) < self.peak {
            limit /= NEXT_LIMIT;
            limits.push(limit as u64);
        }
        for limit in limits {
            if self.over() {
                return;
            }
            let Some(point) = self.front.within(limit) else { continue };
            let choice = point.choice.clone();
            let Some(figures) = self.unfold.figures(&choice, limit) else { continue };
            let mut state = State { choice, figures };
            self.refine(&mut state, limit, refine);
        }
    }

    /// Greedy changes until the limit is met.
    fn reduce(&mut self, state: &mut State, limit: u64) -> bool {
        let mut found = Vec::new();
        loop {
            let Some(figures) = self.unfold.trace(&state.choice, limit) else { return false };
            state.figures = figures;
            if figures.overload == 0.0 {
                return true;
            }
            if self.over() {
                return false;
            }
            let mut best: Option<(f64, Move)> = None;
            for most in [TRIED, 100 * TRIED] {
                candidates(self.unfold, &self.neighbours, &state.choice, limit, most, &mut found);
                if most > TRIED {
                    to_hold(self.unfold, &state.choice, &mut found);
                }
                for &change in &found {
                    let Some(next) = self.attempt(&mut state.choice, change, limit) else { continue };
                    let gain = figures.overload - next.overload;
                    if gain <= 0.0 {
                        continue;
                    }
                    let score = gain / ((next.time - figures.time).max(0.0) + 1e-6 * self.time);
                    if best.is_none_or(|(most, _)| score > most) {
                        best = Some((score, change));
                    }
                }
                if best.is_some() {
                    break;
                }
                // The attempts have overwritten the trace.
                self.unfold.trace(&state.choice, limit);
            }
            match best {
                Some((_, change)) => drop(state.choice.apply(change)),
                None => return false,
            }
        }
    }

    /// The figures after a change, which is taken back.
    fn attempt(&mut self, choice: &mut Choice, change: Move, limit: u64) -> Option<Figures> {
        let undo = choice.apply(change);
        self.evaluated += 1;
        let figures = self.unfold.figures(choice, limit);
        if let Some(figures) = &figures {
            self.front.offer(figures, choice);
        }
        choice.undo(undo);
        figures
    }

    /// Simulated annealing at one limit: time with a penalty for overload.
    fn refine(&mut self, state: &mut State, limit: u64, budget: u64) {
        let Some(figures) = self.unfold.figures(&state.choice, limit) else { return };
        state.figures = figures;
        let penalty = 2.0 * self.time / self.peak.max(1) as f64;
        let cost = |figures: &Figures| figures.time + penalty * figures.overload;
        let mut best: Option<State> = None;
        let (from, until) = (self.unfold.work, self.unfold.work + budget);
        let mut places = places(&state.choice.order);
        while self.unfold.work < until && !self.over() {
            let Some(change) = self.random_move(&state.choice, &places) else { break };
            let undo = state.choice.apply(change);
            self.evaluated += 1;
            let progress = (self.unfold.work - from) as f64 / budget as f64;
            let heat = 0.002 * self.time * (1.0 - progress).max(0.0).powi(2);
            let next = self.unfold.figures(&state.choice, limit);
            let taken = next.filter(|next| {
                let worse = cost(next) - cost(&state.figures);
                worse <= 0.0 || (heat > 0.0 && self.rng.f64() < (-worse / heat).exp())
            });
            let Some(figures) = taken else {
                state.choice.undo(undo);
                continue;
            };
            state.figures = figures;
            if let Move::Shift(..) = change {
                places = super::candidates::places(&state.choice.order);
            }
            self.front.offer(&figures, &state.choice);
            let better = best.as_ref().is_none_or(|best| figures.time < best.figures.time);
            if figures.overload == 0.0 && better {
                best = Some(State { choice: state.choice.clone(), figures });
            }
        }
        if let Some(best) = best {
            *state = best;
        } else if let Some(point) = self.front.within(limit) {
            state.choice = point.choice.clone();
            state.figures = Figures { peak: point.peak, time: point.time, overload: 0.0 };
        }
    }

    fn random_move(&mut self, choice: &Choice, places: &[u32]) -> Option<Move> {
        let program = self.unfold.program();
        let reads = choice.modes.len();
        if reads == 0 {
            return None;
        }
        let held = choice.held.iter().filter(|held| **held).count();
        if held > 0 && self.rng.u8(0..16) == 0 {
            let mut held_values = (0..).zip(&choice.held).filter(|(_, held)| **held).map(|(value, _)| value);
            return held_values.nth(self.rng.usize(0..held)).map(Move::Hold);
        }
        for _ in 0..64 {
            match self.rng.u32(0..10) {
                0..=3 => {
                    // Take an eviction back, or bend it.
                    let start = self.rng.usize(0..reads);
                    let evicted = (start..reads).chain(0..start).find(|&read| choice.modes[read] != Mode::Keep);
                    let Some(read) = evicted else { continue };
                    let to = match (choice.modes[read], self.rng.u8(0..4)) {
                        (Mode::Again, 0) => Mode::Late,
                        (Mode::Late, 0) => Mode::Again,
                        _ => Mode::Keep,
                    };
                    return Some(Move::Mode(read as u32, to));
                }
                4..=6 => {
                    let read = self.rng.usize(0..reads);
                    let value = program.value(self.unfold.reads.value[read]);
                    let repeatable = value.producer.is_some_and(|p| program.operator(p).repeatable);
                    if value.bytes < self.peak / 4096 || !repeatable {
                        continue;
                    }
                    let to = match choice.modes[read] {
                        Mode::Again if self.rng.u8(0..2) == 0 => Mode::Late,
                        Mode::Again => Mode::Keep,
                        _ => Mode::Again,
                    };
                    return Some(Move::Mode(read as u32, to));
                }
                7..=8 => {
                    let operator = self.rng.u32(0..choice.order.len() as u32);
                    let (low, high) = self.neighbours.range(program, places, operator);
                    if low >= high {
                        continue;
                    }
                    let to = self.rng.u32(low..=high);
                    if to != places[operator as usize] {
                        return Some(Move::Shift(operator, to));
                    }
                }
                _ => {
                    if choice.copies.is_empty() {
                        continue;
                    }
                    let transfer = choice.copies[self.rng.usize(0..choice.copies.len())];
                    return Some(Move::Copy(self.bend(transfer, choice, places)));
                }
            }
        }
        None
    }

    /// The same transfer a little earlier or later.
    fn bend(&mut self, transfer: Transfer, choice: &Choice, places: &[u32]) -> Transfer {
        let last = choice.order.len() as i64 - 1;
        let mut moved = |operator: u32| {
            let by = self.rng.i64(-6..=6);
            choice.order[(i64::from(places[operator as usize]) + by).clamp(0, last) as usize]
        };
        let (store, load) = (moved(transfer.store), moved(transfer.load));
        match self.rng.bool() {
            true => Transfer { store, ..transfer },
            false => Transfer { load, ..transfer },
        }
    }
}
