//! Lowers a packing by searching at chosen capacities, the lower bound first.
//!
//! Difficulty is not monotone in capacity, so a binary search with time-outs would be unsound: instead each round gives
//! the lower bound a budget with every preference and then tries capacities between the bound and the best height;
//! budgets double from round to round. Groups of buffers that share no step are packed apart.

use super::{
    failed::Failed,
    hash::mix,
    preference::{Preference, SEARCH},
    problem::Problem,
    search::{Search, Verdict},
    sections::{Number, Sections},
};
use crate::memory::bound;

/// Work of the shortest of the seeded searches, for each buffer of the group.
const RESTART: u64 = 256;
/// Budget of the first round, for each buffer of the group.
const FIRST_ROUND: u64 = 1024;

/// Lowers `offsets` until every buffer ends at or below `target`, the bound is met, or `effort` is used up.
///
/// Returns what is proven: no packing of the problem is lower.
pub(super) fn minimize(problem: &Problem<'_>, offsets: &mut [u64], target: u64, effort: u64) -> u64 {
    let mut state = State { left: effort, failed: Failed::new() };
    let mut groups: Vec<Group<'_>> = groups(problem).into_iter().map(|g| Group::new(problem, g, offsets)).collect();
    let mut round = 0;
    loop {
        // What one group needs anyway is free for the others.
        let needed = groups.iter().map(|g| g.lower).max().unwrap_or(0);
        let goal = needed.max(target);
        let open: Vec<&mut Group<'_>> = groups.iter_mut().filter(|g| g.height > goal).collect();
        if open.is_empty() || state.left == 0 {
            return needed;
        }
        for group in open {
            group.round(&mut state, goal, round, offsets);
        }
        round += 1;
    }
}

struct State {
    left: u64,
    failed: Failed,
}

/// Buffers that share steps only among themselves.
struct Group<'a> {
    problem: &'a Problem<'a>,
    sections: Width,
    unit: u64,
    /// No packing of the group is lower.
    lower: u64,
    /// Of its best packing.
    height: u64,
    /// Seeds of mixed preferences used so far, for each capacity anew.
    seeds: u64,
}

/// Sections in the narrowest integers that hold the offsets.
enum Width {
    Narrow(Sections<i32>),
    Wide(Sections<i64>),
    /// Beyond 63 bits: not searched.
    Beyond,
}

impl<'a> Group<'a> {
    fn new(problem: &'a Problem<'a>, members: Vec<u32>, offsets: &[u64]) -> Group<'a> {
        let buffers: Vec<_> = members.iter().map(|&m| problem.buffers[m as usize]).collect();
        let unit = unit(&buffers);
        let sections = Sections::new(problem, &members, unit).map(Width::Narrow);
        let sections = sections.or_else(|| Sections::new(problem, &members, unit).map(Width::Wide));
        let height = members.iter().map(|&m| offsets[m as usize] + problem.buffers[m as usize].size.0).max();
        Group {
            problem,
            sections: sections.unwrap_or(Width::Beyond),
            unit,
            lower: bound::arena(&buffers).0,
            height: height.unwrap_or(0),
            seeds: 0,
        }
    }

    /// Tries `goal` with every preference, then heights between it and the best one.
    fn round(&mut self, state: &mut State, goal: u64, round: u32, offsets: &mut [u64]) {
        let n = self.problem.buffers.len() as u64;
        let budget = (n * FIRST_ROUND).saturating_mul(1 << round.min(40));
        for &preference in SEARCH {
            if self.attempt(state, goal, preference, budget, offsets) != Verdict::Spent {
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
            if self.attempt(state, goal, preference, restart, offsets) != Verdict::Spent {
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
    }

    /// One search at one capacity.
    fn attempt(
        &mut self,
        state: &mut State,
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
                Verdict::Spent
            }
        };
        match verdict {
            Verdict::Packed => self.height = self.measure(offsets),
            Verdict::Impossible => self.lower = self.lower.max(capacity / self.unit * self.unit + self.unit),
            Verdict::Spent => {}
        }
        verdict
    }

    fn measure(&self, offsets: &[u64]) -> u64 {
        let members = match &self.sections {
            Width::Narrow(sections) => &sections.members,
            Width::Wide(sections) => &sections.members,
            Width::Beyond => return self.height,
        };
        let ends = members.iter().map(|&m| offsets[m as usize] + self.problem.buffers[m as usize].size.0);
        ends.max().unwrap_or(0)
    }
}

fn search<N: Number>(
    sections: &Sections<N>,
    capacity: u64,
    preference: Preference,
    budget: u64,
    state: &mut State,
    offsets: &mut [u64],
) -> Verdict {
    let Some(capacity) = N::of(capacity / sections.unit) else { return Verdict::Spent };
    let mut search = Search::new(sections, preference, capacity, &mut state.failed);
    let verdict = search.run(budget);
    if verdict == Verdict::Packed {
        for (&member, offset) in sections.members.iter().zip(search.offsets()) {
            offsets[member as usize] = offset.get() * sections.unit;
        }
    }
    // Every search costs something, also one that ends at once.
    state.left = state.left.saturating_sub(search.work() + sections.len() as u64);
    verdict
}

/// The buffers that take part, in groups that share no step.
fn groups(problem: &Problem<'_>) -> Vec<Vec<u32>> {
    let buffers = problem.buffers;
    let mut members: Vec<u32> = (0..buffers.len() as u32).collect();
    members.retain(|&m| buffers[m as usize].size.0 > 0 && buffers[m as usize].lower < buffers[m as usize].upper);
    members.sort_by_key(|&m| (buffers[m as usize].lower, m));
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut until = 0;
    for member in members {
        let buffer = &buffers[member as usize];
        match groups.last_mut() {
            Some(group) if buffer.lower < until => group.push(member),
            _ => groups.push(vec![member]),
        }
        until = until.max(buffer.upper);
    }
    groups
}

/// The largest number that divides all sizes and given offsets, and divides or is a multiple of each alignment.
fn unit(buffers: &[crate::memory::Buffer]) -> u64 {
    let sizes = buffers.iter().flat_map(|b| [b.size.0, b.fixed.map_or(0, |f| f.0)]);
    let mut unit = sizes.fold(0, bound::gcd).max(1);
    loop {
        let odd = buffers.iter().map(|b| b.align).filter(|align| unit % align != 0 && align % unit != 0);
        let finer = odd.fold(unit, bound::gcd);
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
