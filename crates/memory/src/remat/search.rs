//! Greedy descent from program order under decreasing memory limits: each step applies the move that removes the most
//! overload per added time; then simulated annealing at every limit.
//!
//! The sequence of limits does not depend on the requested limit, and all schedules on the front are kept, so a looser
//! limit never gives a worse result. The budget is counted in evaluated steps, not in time.

use std::time::Instant;

use fastrand::Rng;

use super::{
    candidates::{candidates, retain_candidates},
    pareto_front::ParetoFront,
    precedence::{Precedence, positions},
    remat_options::RematOptions,
    schedule_decision::{HostTransfer, ReadMode, ScheduleDecision, ScheduleMove},
    schedule_expander::ScheduleExpander,
    schedule_step::ScheduleCost,
};
use edgecut_graph::units::Bytes;

/// Each limit is this fraction of the previous peak.
const NEXT_LIMIT: f64 = 0.97;
/// Moves of each kind that are evaluated per greedy step.
const MOVES_PER_KIND: usize = 16;
/// A descent ends at a schedule that is slower than program order by more than this factor.
const MAX_SLOWDOWN: f64 = 4.0;

/// A search on one program.
pub struct RematSearch<'a, 'p> {
    expander: &'a mut ScheduleExpander<'p>,
    front: &'a mut ParetoFront,
    rng: Rng,
    /// Limit on the expander's work, in evaluated steps.
    budget: u64,
    cut_off: Option<Instant>,
    precedence: Precedence,
    /// Decisions evaluated.
    pub evaluated: u64,
    /// Time of program order, in microseconds.
    time: f64,
    /// Peak of program order, in bytes.
    peak: u64,
}

/// A decision with its cost.
struct SearchState {
    decision: ScheduleDecision,
    cost: ScheduleCost,
}

impl<'a, 'p> RematSearch<'a, 'p> {
    pub fn new(
        expander: &'a mut ScheduleExpander<'p>,
        front: &'a mut ParetoFront,
        options: &RematOptions,
    ) -> RematSearch<'a, 'p> {
        let program = expander.program;
        RematSearch {
            precedence: Precedence::of(program),
            rng: Rng::with_seed(options.seed),
            budget: expander.work + options.budget,
            cut_off: options.cut_off,
            evaluated: 0,
            time: program.time().0,
            peak: 0,
            expander,
            front,
        }
    }

    /// Descends once without and once with annealing.
    pub fn run(&mut self) {
        let start = ScheduleDecision::keep_all(self.expander.program);
        let Some(cost) = self.expander.cost(&start, Bytes(u64::MAX)) else { return };
        self.peak = cost.peak.0;
        self.front.offer(&cost, &start);
        let before = self.expander.work;
        let limits = self.descend(start.clone(), 0).max(1);
        let spent = self.expander.work - before;
        let left = self.budget.saturating_sub(self.expander.work);
        let share = left.saturating_sub(spent * 2) / limits / 2;
        self.descend(start, share);
        self.climb(share);
    }

    fn is_over(&self) -> bool {
        self.expander.work >= self.budget || self.cut_off.is_some_and(|at| Instant::now() >= at)
    }

    /// Lowers the limit until no move helps; returns the number of limits met. `anneal` is the budget of annealing per
    /// limit.
    fn descend(&mut self, start: ScheduleDecision, anneal: u64) -> u64 {
        let mut met = 0;
        let Some(cost) = self.expander.cost(&start, Bytes(u64::MAX)) else { return 0 };
        let mut state = SearchState { decision: start, cost };
        let floor = self.expander.program.peak_bound();
        while state.cost.peak > floor && !self.is_over() {
            let limit = Bytes((state.cost.peak.0 as f64 * NEXT_LIMIT) as u64).max(floor);
            if !self.reduce(&mut state, limit) {
                break;
            }
            met += 1;
            if anneal > 0 {
                self.anneal(&mut state, limit, anneal);
            }
            if state.cost.time.0 > self.time * MAX_SLOWDOWN {
                break;
            }
        }
        met
    }

    /// Anneals under increasing limits: moves needed for a tight limit may be undone under a looser one. `anneal` is
    /// the budget of annealing per limit.
    fn climb(&mut self, anneal: u64) {
        let mut limits: Vec<Bytes> = Vec::new();
        let mut limit = self.front.points().first().map_or(u64::MAX, |p| p.peak.0) as f64;
        while (limit as u64) < self.peak {
            limit /= NEXT_LIMIT;
            limits.push(Bytes(limit as u64));
        }
        for limit in limits {
            if self.is_over() {
                return;
            }
            let Some(point) = self.front.within(limit) else { continue };
            let decision = point.decision.clone();
            let Some(cost) = self.expander.cost(&decision, limit) else { continue };
            let mut state = SearchState { decision, cost };
            self.anneal(&mut state, limit, anneal);
        }
    }

    /// Applies greedy moves until the limit is met; false if it cannot be.
    fn reduce(&mut self, state: &mut SearchState, limit: Bytes) -> bool {
        let mut found = Vec::new();
        loop {
            let Some(cost) = self.expander.trace(&state.decision, limit) else { return false };
            state.cost = cost;
            if cost.overload == 0.0 {
                return true;
            }
            if self.is_over() {
                return false;
            }
            let mut best: Option<(f64, ScheduleMove)> = None;
            for count in [MOVES_PER_KIND, 100 * MOVES_PER_KIND] {
                candidates(self.expander, &self.precedence, &state.decision, limit, count, &mut found);
                if count > MOVES_PER_KIND {
                    retain_candidates(self.expander, &state.decision, &mut found);
                }
                for &change in &found {
                    let Some(next) = self.attempt(&mut state.decision, change, limit) else { continue };
                    let gain = cost.overload - next.overload;
                    if gain <= 0.0 {
                        continue;
                    }
                    let score = gain / ((next.time.0 - cost.time.0).max(0.0) + 1e-6 * self.time);
                    if best.is_none_or(|(most, _)| score > most) {
                        best = Some((score, change));
                    }
                }
                if best.is_some() {
                    break;
                }
                // The attempts have overwritten the trace.
                self.expander.trace(&state.decision, limit);
            }
            match best {
                Some((_, change)) => drop(state.decision.apply(change)),
                None => return false,
            }
        }
    }

    /// Applies a move, evaluates the decision and undoes the move; `None` if the schedule is infeasible.
    fn attempt(&mut self, decision: &mut ScheduleDecision, change: ScheduleMove, limit: Bytes) -> Option<ScheduleCost> {
        let undo = decision.apply(change);
        self.evaluated += 1;
        let cost = self.expander.cost(decision, limit);
        if let Some(cost) = &cost {
            self.front.offer(cost, decision);
        }
        decision.undo(undo);
        cost
    }

    /// Simulated annealing at one limit: time plus a penalty for overload.
    fn anneal(&mut self, state: &mut SearchState, limit: Bytes, budget: u64) {
        let Some(cost) = self.expander.cost(&state.decision, limit) else { return };
        state.cost = cost;
        let penalty = 2.0 * self.time / self.peak.max(1) as f64;
        let energy = |cost: &ScheduleCost| cost.time.0 + penalty * cost.overload;
        let mut best: Option<SearchState> = None;
        let (from, until) = (self.expander.work, self.expander.work + budget);
        let mut at = positions(&state.decision.order);
        while self.expander.work < until && !self.is_over() {
            let Some(change) = self.random_move(&state.decision, &at) else { break };
            let undo = state.decision.apply(change);
            self.evaluated += 1;
            let progress = (self.expander.work - from) as f64 / budget as f64;
            let temperature = 0.002 * self.time * (1.0 - progress).max(0.0).powi(2);
            let next = self.expander.cost(&state.decision, limit);
            let accepted = next.filter(|next| {
                let worse = energy(next) - energy(&state.cost);
                worse <= 0.0 || (temperature > 0.0 && self.rng.f64() < (-worse / temperature).exp())
            });
            let Some(cost) = accepted else {
                state.decision.undo(undo);
                continue;
            };
            state.cost = cost;
            if let ScheduleMove::Shift(..) = change {
                at = positions(&state.decision.order);
            }
            self.front.offer(&cost, &state.decision);
            let is_better = best.as_ref().is_none_or(|best| cost.time < best.cost.time);
            if cost.overload == 0.0 && is_better {
                best = Some(SearchState { decision: state.decision.clone(), cost });
            }
        }
        if let Some(best) = best {
            *state = best;
        } else if let Some(point) = self.front.within(limit) {
            state.decision = point.decision.clone();
            state.cost = ScheduleCost { peak: point.peak, time: point.time, overload: 0.0 };
        }
    }

    fn random_move(&mut self, decision: &ScheduleDecision, positions: &[u32]) -> Option<ScheduleMove> {
        if decision.modes.is_empty() {
            return None;
        }
        let retained = decision.retained.iter().filter(|retained| **retained).count();
        if retained > 0 && self.rng.u8(0..16) == 0 {
            let mut values = (0..).zip(&decision.retained).filter(|(_, retained)| **retained).map(|(value, _)| value);
            return values.nth(self.rng.usize(0..retained)).map(ScheduleMove::Retain);
        }
        for _ in 0..64 {
            let found = match self.rng.u32(0..10) {
                0..=3 => self.random_restore(decision),
                4..=6 => self.random_eviction(decision),
                7..=8 => self.random_shift(decision, positions),
                _ => self.random_transfer(decision, positions),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Keeps a value for a read that recomputes it, or changes the mode of its recomputation.
    fn random_restore(&mut self, decision: &ScheduleDecision) -> Option<ScheduleMove> {
        let reads = decision.modes.len();
        let start = self.rng.usize(0..reads);
        let read = (start..reads).chain(0..start).find(|&read| decision.modes[read] != ReadMode::Keep)?;
        let to = match (decision.modes[read], self.rng.u8(0..4)) {
            (ReadMode::Remat, 0) => ReadMode::RematLate,
            (ReadMode::RematLate, 0) => ReadMode::Remat,
            _ => ReadMode::Keep,
        };
        Some(ScheduleMove::Mode(read as u32, to))
    }

    /// Recomputes a value for a read, or changes the mode; not values below 1/4096 of the peak.
    fn random_eviction(&mut self, decision: &ScheduleDecision) -> Option<ScheduleMove> {
        let program = self.expander.program;
        let read = self.rng.usize(0..decision.modes.len());
        let value = program.value(self.expander.reads.value[read]);
        let is_repeatable = value.producer.is_some_and(|p| program.operator(p).repeatable);
        if value.bytes.0 < self.peak / 4096 || !is_repeatable {
            return None;
        }
        let to = match decision.modes[read] {
            ReadMode::Remat if self.rng.u8(0..2) == 0 => ReadMode::RematLate,
            ReadMode::Remat => ReadMode::Keep,
            _ => ReadMode::Remat,
        };
        Some(ScheduleMove::Mode(read as u32, to))
    }

    /// Moves an operator to another position that its dependencies allow.
    fn random_shift(&mut self, decision: &ScheduleDecision, positions: &[u32]) -> Option<ScheduleMove> {
        let operator = self.rng.u32(0..decision.order.len() as u32);
        let (low, high) = self.precedence.range(self.expander.program, positions, operator);
        if low >= high {
            return None;
        }
        let to = self.rng.u32(low..=high);
        (to != positions[operator as usize]).then_some(ScheduleMove::Shift(operator, to))
    }

    /// Moves the store or the load of a transfer by up to 6 positions.
    fn random_transfer(&mut self, decision: &ScheduleDecision, positions: &[u32]) -> Option<ScheduleMove> {
        if decision.transfers.is_empty() {
            return None;
        }
        let transfer = decision.transfers[self.rng.usize(0..decision.transfers.len())];
        let last = decision.order.len() as i64 - 1;
        let mut moved = |operator: u32| {
            let by = self.rng.i64(-6..=6);
            decision.order[(i64::from(positions[operator as usize]) + by).clamp(0, last) as usize]
        };
        let (store, load) = (moved(transfer.store), moved(transfer.load));
        Some(ScheduleMove::Offload(match self.rng.bool() {
            true => HostTransfer { store, ..transfer },
            false => HostTransfer { load, ..transfer },
        }))
    }
}
