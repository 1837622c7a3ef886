//! Lowers a packing by searches at selected capacities, the lower bound first.
//!
//! Where the lower bound is met, a depth-first search nearly always finds that early; otherwise a beam search finds low
//! packings sooner. The difficulty is not monotone in the capacity, so a binary search with time-outs would be unsound.
//! Instead, each round tries the lower bound with every preference, then capacities between the bound and the best
//! height, and then beam searches; budgets double from round to round. Components of buffers with disjoint lifetimes are
//! packed independently.

use super::{
    beam::{Beam, expected_work, setting},
    failed_states::FailedStates,
    hash::mix,
    preference::{Preference, SEARCH},
    problem::Problem,
    search::{BranchAndBound, Verdict},
    sections::{Number, Sections},
    watch::Watch,
};
use crate::bound;

/// Work of the shortest randomised search, per buffer of the component.
const RESTART: u64 = 256;
/// Budget of the first round, per buffer of the component.
const FIRST_ROUND: u64 = 1024;
/// Most work of a round's beam searches, in multiples of one of its other searches: they start with half of
/// it, get twice as much after a round in which they lowered the packing, and half as much after one in which they did
/// not. A larger start leaves too little to the exact search where the effort is small, a smaller one too little to the
/// beams where there are more than some 500 buffers.
const BEAMS: u64 = 16;

/// The most buffers of a component that is searched: their levels take up to 32 bytes for each pair of buffers.
const SEARCHED: usize = 4096;

/// Lowers `offsets` until every buffer ends at or below `target`, the bound is met, or `effort` is used up.
///
/// Returns a proven lower bound on the height.
pub(super) fn minimize(
    problem: &Problem<'_>,
    offsets: &mut [u64],
    target: u64,
    effort: u64,
    watch: &mut Watch<'_>,
) -> u64 {
    let mut state = Budget { left: effort, failed: FailedStates::new(), watch };
    let end = |member: u32| offsets[member as usize] + problem.buffers[member as usize].size.0;
    let is_high = |group: &Vec<u32>| group.iter().any(|&member| end(member) > target);
    let high: Vec<Vec<u32>> = groups(problem).into_iter().filter(is_high).collect();
    let mut groups: Vec<Component<'_>> = high.into_iter().map(|g| Component::new(problem, g, offsets)).collect();
    let mut round = 0;
    loop {
        // The other components may use what one of them needs anyway, or takes because it is not searched.
        let needed = groups.iter().map(|g| g.lower).max().unwrap_or(0);
        let taken = groups.iter().filter(|g| g.members().is_empty()).map(|g| g.height).max().unwrap_or(0);
        let goal = needed.max(target).max(taken);
        let open: Vec<&mut Component<'_>> = groups.iter_mut().filter(|g| g.height > goal).collect();
        if open.is_empty() || state.left == 0 {
            return needed;
        }
        for group in open {
            group.round(&mut state, goal, round, offsets);
        }
        state.watch.reached(groups.iter().map(|g| g.height).max().unwrap_or(0));
        round += 1;
    }
}

/// Whether every component that must get lower for `target` is searched.
pub(super) fn searches(problem: &Problem<'_>, offsets: &[u64], target: u64) -> bool {
    let end = |member: u32| offsets[member as usize] + problem.buffers[member as usize].size.0;
    groups(problem).iter().all(|group| group.len() <= SEARCHED || group.iter().all(|&member| end(member) <= target))
}

struct Budget<'s, 'w> {
    left: u64,
    failed: FailedStates,
    watch: &'s mut Watch<'w>,
}

impl Budget<'_, '_> {
    fn spend(&mut self, work: u64) {
        self.left = if self.watch.has_stopped() { 0 } else { self.left.saturating_sub(work) };
    }
}

/// Buffers whose lifetimes overlap only among themselves.
struct Component<'a> {
    problem: &'a Problem<'a>,
    sections: Width,
    unit: u64,
    /// Lower bound on its height.
    lower: u64,
    /// Height of its best packing.
    height: u64,
    /// The number of seeds of mixed preferences used so far.
    seeds: u64,
    /// The number of beam searches so far.
    beams: usize,
    /// Work of its beam searches, in multiples of a round's budget.
    beam_share: u64,
}

/// Sections in the narrowest integers that hold the offsets.
enum Width {
    Narrow(Sections<i32>),
    Wide(Sections<i64>),
    /// More than 63 bits, or more than [`SEARCHED`] buffers: not searched.
    Beyond,
}

impl<'a> Component<'a> {
    fn new(problem: &'a Problem<'a>, members: Vec<u32>, offsets: &[u64]) -> Component<'a> {
        let buffers: Vec<_> = members.iter().map(|&m| problem.buffers[m as usize]).collect();
        let unit = unit(&buffers);
        let is_searched = members.len() <= SEARCHED;
        let narrow = || Sections::new(problem, &members, unit).map(Width::Narrow);
        let wide = || Sections::new(problem, &members, unit).map(Width::Wide);
        let sections = if is_searched { narrow().or_else(wide) } else { None };
        let height = members.iter().map(|&m| offsets[m as usize] + problem.buffers[m as usize].size.0).max();
        Component {
            problem,
            sections: sections.unwrap_or(Width::Beyond),
            unit,
            lower: bound::arena(&buffers).0,
            height: height.unwrap_or(0),
            seeds: 0,
            beams: 0,
            beam_share: BEAMS / 2,
        }
    }

    /// Beam searches for lower packings, each with another ranking or wider than the last.
    fn widen(&mut self, state: &mut Budget<'_, '_>, goal: u64, budget: u64, offsets: &mut [u64]) {
        let until = state.left.saturating_sub(budget);
        while self.height > goal && state.left > until {
            let (turn, height, room) = (self.beams, self.height, state.left - until);
            let searched = match &self.sections {
                Width::Narrow(sections) => beam(sections, turn, height, room, state, offsets),
                Width::Wide(sections) => beam(sections, turn, height, room, state, offsets),
                Width::Beyond => None,
            };
            if searched.is_none() {
                return;
            }
            self.beams += 1;
            self.height = self.measure(offsets);
        }
    }

    /// Tries `goal` with every preference, then heights between it and the best one.
    fn round(&mut self, state: &mut Budget<'_, '_>, goal: u64, round: u32, offsets: &mut [u64]) {
        let n = self.members().len() as u64;
        let budget = (n * FIRST_ROUND).saturating_mul(1 << round.min(40));
        for &preference in SEARCH {
            if self.attempt(state, goal, preference, budget, offsets) != Verdict::Exhausted {
                return;
            }
        }
        let mut spent = 0;
        let mut turn = 1;
        while spent < budget && state.left > 0 {
            let restart = n * RESTART * luby(turn);
            turn += 1;
            spent += restart;
            self.seeds += 1;
            let preference = Preference::Mixed { seed: mix(self.seeds) };
            if self.attempt(state, goal, preference, restart, offsets) != Verdict::Exhausted {
                return;
            }
        }
        let mut low = goal;
        while self.height > low + self.unit && state.left > 0 {
            let middle = low + (self.height - low) / 2;
            let packed = SEARCH.iter().any(|p| self.attempt(state, middle, *p, budget / 4, offsets) == Verdict::Packed);
            if !packed {
                low = middle;
            }
        }
        let (height, searched) = (self.height, self.beams);
        self.widen(state, goal, budget.saturating_mul(self.beam_share), offsets);
        if self.beams > searched {
            let share = self.beam_share;
            self.beam_share = if self.height < height { (2 * share).min(BEAMS) } else { (share / 2).max(1) };
        }
    }

    /// One search at one capacity.
    fn attempt(
        &mut self,
        state: &mut Budget<'_, '_>,
        capacity: u64,
        preference: Preference,
        budget: u64,
        offsets: &mut [u64],
    ) -> Verdict {
        let budget = budget.min(state.left);
        let verdict = match &self.sections {
            Width::Narrow(sections) => search(sections, capacity, preference, budget, state, offsets),
            Width::Wide(sections) => search(sections, capacity, preference, budget, state, offsets),
            Width::Beyond => {
                state.left = 0;
                Verdict::Exhausted
            }
        };
        match verdict {
            Verdict::Packed => self.height = self.measure(offsets),
            Verdict::Impossible => self.lower = self.lower.max(capacity / self.unit * self.unit + self.unit),
            Verdict::Exhausted => {}
        }
        verdict
    }

    fn measure(&self, offsets: &[u64]) -> u64 {
        let ends = self.members().iter().map(|&m| offsets[m as usize] + self.problem.buffers[m as usize].size.0);
        ends.max().unwrap_or(self.height)
    }

    /// The buffers that are searched.
    fn members(&self) -> &[u32] {
        match &self.sections {
            Width::Narrow(sections) => &sections.members,
            Width::Wide(sections) => &sections.members,
            Width::Beyond => &[],
        }
    }
}

/// Replaces the offsets by those of a lower packing, if the beam search number `turn` finds one; `None` if there is no such
/// search, or it takes more work than `room`.
fn beam<N: Number>(
    sections: &Sections<N>,
    turn: usize,
    height: u64,
    room: u64,
    state: &mut Budget<'_, '_>,
    offsets: &mut [u64],
) -> Option<()> {
    if !sections.is_free(height / sections.unit) {
        return None;
    }
    let (ranking, width) = setting(sections, turn)?;
    if expected_work(sections, width) > room {
        return None;
    }
    let mut beam = Beam::new(sections, ranking, height / sections.unit);
    if let Some(found) = beam.run(width, state.left, state.watch) {
        for (&member, offset) in sections.members.iter().zip(found) {
            offsets[member as usize] = offset.get() * sections.unit;
        }
    }
    let work = beam.work();
    state.spend(work + sections.len() as u64);
    Some(())
}

fn search<N: Number>(
    sections: &Sections<N>,
    capacity: u64,
    preference: Preference,
    budget: u64,
    state: &mut Budget<'_, '_>,
    offsets: &mut [u64],
) -> Verdict {
    let Some(capacity) = N::of(capacity / sections.unit) else { return Verdict::Exhausted };
    let mut search = BranchAndBound::new(sections, preference, capacity, &mut state.failed);
    let verdict = search.run(budget, state.watch);
    if verdict == Verdict::Packed {
        for (&member, offset) in sections.members.iter().zip(search.offsets()) {
            offsets[member as usize] = offset.get() * sections.unit;
        }
    }
    // Even a search that ends at once has a cost.
    let work = search.work();
    state.spend(work + sections.len() as u64);
    verdict
}

/// The buffers of nonzero size and lifetime, by component.
fn groups(problem: &Problem<'_>) -> Vec<Vec<u32>> {
    let buffers = problem.buffers;
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut until = 0;
    for &member in problem.born() {
        let buffer = &buffers[member as usize];
        match groups.last_mut() {
            Some(group) if buffer.lower < until => group.push(member),
            _ => groups.push(vec![member]),
        }
        until = until.max(buffer.upper);
    }
    groups
}

/// The largest number that divides all sizes and fixed offsets, and divides or is a multiple of each alignment.
fn unit(buffers: &[crate::Buffer]) -> u64 {
    let sizes = buffers.iter().flat_map(|b| [b.size.0, b.fixed.map_or(0, |f| f.0)]);
    let mut unit = sizes.fold(0, bound::gcd).max(1);
    loop {
        let incompatible = buffers.iter().map(|b| b.align).filter(|align| unit % align != 0 && align % unit != 0);
        let finer = incompatible.fold(unit, bound::gcd);
        if finer == unit {
            return unit;
        }
        unit = finer;
    }
}

/// The sequence 1 1 2 1 1 2 4 1 … of restart lengths (Luby, Sinclair, Zuckerman 1993), from turn 1.
fn luby(turn: u64) -> u64 {
    let mut turn = turn;
    loop {
        let size = (turn + 1).next_power_of_two();
        if size == turn + 1 {
            return size / 2;
        }
        turn -= size / 2 - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_follow_luby() {
        let lengths: Vec<u64> = (1..16).map(luby).collect();
        assert_eq!(lengths, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }
}
