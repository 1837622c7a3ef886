//! The order of least peak: dynamic programming over the sets of operators that are done, level by level.
//!
//! Two orders of the same operators leave the same values behind, so only the one with the lower peak is kept. An
//! operator that can run within the peak so far and leaves no more memory in use than before runs at once: no
//! order gains by waiting. Narrow waists and series-parallel graphs keep the levels small, and then the result is
//! exact; where a level has more sets than the width allows, the lowest are kept, and it is a beam. Searches under
//! a limit then find out how far the peak is from the least one, beginning at the bound of [`spikes`].

use foldhash::HashMap;
use smallvec::SmallVec;

use super::{
    Reuse,
    program::{OperatorIndex, Program},
    spikes,
};

/// How often the limit is halved.
const TURNS: u32 = 10;

/// An order and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    pub order: Vec<OperatorIndex>,
    /// Bytes.
    pub peak: u64,
    /// No order has a lower peak.
    pub bound: u64,
}

/// Some operators that are done, and the best way to get there.
#[derive(Clone)]
struct State {
    done: SmallVec<[u64; 8]>,
    key: u128,
    ready: SmallVec<[OperatorIndex; 8]>,
    now: u64,
    peak: u64,
    /// The last operator and the state before it.
    link: u32,
}

/// What a search for an order within a limit comes to.
enum Outcome {
    Found(Ordered),
    /// There is none.
    Impossible,
    /// Sets were left out, and no order was found with the rest.
    Unknown,
}

/// The order of least peak; with at most `width` sets a level.
///
/// A first search without a limit gives a peak. Then the limit is halved towards what is proved to be impossible: a
/// limit leaves few sets, so searches that fail the first time are often complete under it.
///
/// `reuse` says of each operator whose bytes its output may take over; nothing is replaced in the program itself.
pub fn least_peak(program: &Program, reuse: &[Reuse], width: usize) -> Ordered {
    let search = Search::new(program, reuse);
    let mut best = match search.within(u64::MAX, width) {
        Outcome::Found(found) => found,
        _ => return Ordered { order: Vec::new(), peak: program.resident, bound: program.resident },
    };
    let mut lower = search.single();
    if lower < best.peak {
        let extra = |operator| search.extra(operator);
        lower = lower.max(spikes::least_peak(program, &extra, best.peak));
    }
    let (mut low, mut high) = (lower.min(best.peak), best.peak);
    for turn in 0..=TURNS {
        if low >= best.peak || (low >= high && turn < TURNS) {
            continue;
        }
        // At last the question that would make it exact.
        let limit = if turn == TURNS { best.peak - 1 } else { low + (high - low) / 2 };
        match search.within(limit, width) {
            Outcome::Found(found) => {
                high = found.peak;
                best = found;
            }
            Outcome::Impossible => low = low.max(limit + 1),
            Outcome::Unknown => high = limit,
        }
    }
    best.bound = low.min(best.peak);
    best
}

impl Search<'_> {
    /// An order whose peak is within a limit; without one, the lowest that the width allows to find.
    fn within(&self, limit: u64, width: usize) -> Outcome {
        let mut links: Vec<(u32, OperatorIndex)> = vec![(0, 0)];
        let mut states = vec![self.start()];
        let mut complete = true;
        for _ in self.first().count()..self.program.operators.len() {
            let mut next: HashMap<u128, State> = HashMap::default();
            for state in &states {
                let enough = if limit == u64::MAX { state.peak } else { limit };
                let free = state.ready.iter().copied().find(|&operator| {
                    let (during, after) = self.cost(state, operator);
                    during <= enough && after <= state.now
                });
                let tried: SmallVec<[OperatorIndex; 8]> = match free {
                    Some(operator) => SmallVec::from_slice(&[operator]),
                    None => state.ready.clone(),
                };
                for operator in tried {
                    let (during, after) = self.cost(state, operator);
                    let peak = state.peak.max(during);
                    let key = state.key ^ self.keys[operator as usize];
                    if peak <= limit && next.get(&key).is_none_or(|other| peak < other.peak) {
                        links.push((state.link, operator));
                        let link = links.len() as u32 - 1;
                        next.insert(key, self.after(state, operator, key, after, peak, link));
                    }
                }
            }
            states = next.into_values().collect();
            states.sort_unstable_by_key(|state| (state.peak, state.now, state.key));
            if states.len() > width {
                states.truncate(width);
                complete = false;
            }
        }
        let Some(last) = states.first() else {
            return if complete { Outcome::Impossible } else { Outcome::Unknown };
        };
        let mut order = Vec::with_capacity(self.program.operators.len());
        let mut link = last.link;
        while link != 0 {
            let (before, operator) = links[link as usize];
            order.push(operator);
            link = before;
        }
        order.extend(self.first().collect::<Vec<_>>().into_iter().rev());
        order.reverse();
        Outcome::Found(Ordered { order, peak: last.peak, bound: 0 })
    }
}

struct Search<'a> {
    program: &'a Program,
    reuse: &'a [Reuse],
    before: Vec<SmallVec<[OperatorIndex; 4]>>,
    after: Vec<SmallVec<[OperatorIndex; 4]>>,
    readers: Vec<SmallVec<[OperatorIndex; 4]>>,
    /// A random number for each operator: a set's key is the sum of its members' numbers.
    keys: Vec<u128>,
}

impl<'a> Search<'a> {
    fn new(program: &'a Program, reuse: &'a [Reuse]) -> Search<'a> {
        let before = program.predecessors();
        let mut after: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); before.len()];
        for (operator, list) in (0..).zip(&before) {
            list.iter().for_each(|&earlier| after[earlier as usize].push(operator));
        }
        let mut readers: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); program.values.len()];
        for (index, operator) in (0..).zip(&program.operators) {
            operator.reads.iter().for_each(|&read| readers[read as usize].push(index));
        }
        let mut rng = fastrand::Rng::with_seed(1);
        let keys = before.iter().map(|_| rng.u128(..)).collect();
        Search { program, reuse, before, after, readers, keys }
    }

    /// The operators that begin every order.
    fn first(&self) -> impl Iterator<Item = OperatorIndex> {
        (0..).zip(&self.program.operators).filter(|(_, operator)| operator.first).map(|(index, _)| index)
    }

    fn start(&self) -> State {
        let count = self.program.operators.len();
        let ready = (0..count as u32).filter(|&operator| self.before[operator as usize].is_empty()).collect();
        let words = count.div_ceil(64);
        let now = self.program.resident + self.inputs();
        let mut state = State { done: SmallVec::from_elem(0, words), key: 0, ready, now, peak: now, link: 0 };
        for operator in self.first() {
            let (during, after) = self.cost(&state, operator);
            let peak = state.peak.max(during);
            state = self.after(&state, operator, state.key ^ self.keys[operator as usize], after, peak, 0);
        }
        state
    }

    /// Bytes of what is there from the beginning and goes after its last use.
    fn inputs(&self) -> u64 {
        self.program.values.iter().filter(|v| v.producer.is_none()).map(|v| v.bytes).sum()
    }

    /// Bytes in use while an operator runs, and after it.
    fn cost(&self, state: &State, operator: OperatorIndex) -> (u64, u64) {
        let program = self.program;
        let run = program.operator(operator);
        let grown: u64 = run.writes.iter().map(|&write| program.value(write).bytes).sum();
        let dies = |&&read: &&u32| {
            let mut readers = self.readers[read as usize].iter();
            !program.value(read).result && readers.all(|&r| r == operator || has(&state.done, r))
        };
        let dying: SmallVec<[u32; 4]> = run.reads.iter().filter(dies).copied().collect();
        let freed: u64 = dying.iter().map(|&read| program.value(read).bytes).sum();
        let during = state.now + grown + run.workspace - self.taken_over(operator, dying);
        let unused: u64 = run
            .writes
            .iter()
            .filter(|&&write| !program.value(write).result && self.readers[write as usize].is_empty())
            .map(|&write| program.value(write).bytes)
            .sum();
        (during, state.now + grown - freed - unused)
    }

    /// Bytes that an operator's results take over from operands that die with it.
    fn taken_over(&self, operator: OperatorIndex, mut dying: SmallVec<[u32; 4]>) -> u64 {
        let run = self.program.operator(operator);
        let size = |value: u32| self.program.value(value).bytes;
        let mut taken = 0;
        for bytes in run.writes.iter().map(|&write| size(write)) {
            let over = match self.reuse.get(operator as usize) {
                Some(Reuse::InPlace) => dying.iter().position(|&old| size(old) == bytes),
                // Larger operands count as fitting: what is left over is too little here, never too much.
                Some(Reuse::First) => {
                    dying.iter().position(|&old| run.reads.first() == Some(&old) && size(old) >= bytes)
                }
                _ => None,
            };
            if let Some(place) = over {
                dying.swap_remove(place);
                taken += bytes;
            }
        }
        taken
    }

    /// No order has a lower peak: what one operator needs with as much taken over as can be.
    fn single(&self) -> u64 {
        let program = self.program;
        let need = |(index, operator): (u32, &super::program::Operator)| {
            let reads: u64 = operator.reads.iter().map(|&read| program.value(read).bytes).sum();
            reads + self.extra(index)
        };
        let results: u64 = program.values.iter().filter(|v| v.result).map(|v| v.bytes).sum();
        let single = (0..).zip(&program.operators).map(need).max().unwrap_or(0);
        program.resident + single.max(results)
    }

    /// What an operator needs besides all that is there before it runs, with as much taken over as can be.
    fn extra(&self, index: OperatorIndex) -> u64 {
        let operator = self.program.operator(index);
        let writes: u64 = operator.writes.iter().map(|&write| self.program.value(write).bytes).sum();
        writes + operator.workspace - self.taken_over(index, operator.reads.iter().copied().collect())
    }

    fn after(&self, state: &State, operator: OperatorIndex, key: u128, now: u64, peak: u64, link: u32) -> State {
        let mut done = state.done.clone();
        done[operator as usize / 64] |= 1 << (operator % 64);
        let mut ready: SmallVec<[OperatorIndex; 8]> = state.ready.iter().copied().filter(|&o| o != operator).collect();
        let free = |next: &&u32| self.before[**next as usize].iter().all(|&before| has(&done, before));
        ready.extend(self.after[operator as usize].iter().filter(free).copied());
        State { ready, key, now, peak, link, done }
    }
}

fn has(done: &[u64], operator: OperatorIndex) -> bool {
    done[operator as usize / 64] >> (operator % 64) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::program::{Operator, Value};

    /// Operators as (reads, bytes made); what nobody reads is a result.
    fn program(operators: &[(&[u32], u64)]) -> Program {
        let mut program = Program::default();
        for (index, (reads, bytes)) in (0..).zip(operators) {
            let mut operator = Operator { reads: SmallVec::from_slice(reads), ..Operator::default() };
            operator.writes.push(index);
            program.operators.push(operator);
            let result = !operators.iter().any(|o| o.0.contains(&index));
            program.values.push(Value { bytes: *bytes, producer: Some(index), result, replaces: None, storage: index });
        }
        program
    }

    /// The least peak over all orders, by trying each.
    fn brute_force(program: &Program, order: &mut Vec<u32>) -> u64 {
        let search = Search::new(program, &[]);
        let mut state = search.start();
        for &operator in order.iter() {
            let (during, after) = search.cost(&state, operator);
            let peak = state.peak.max(during);
            state = search.after(&state, operator, 0, after, peak, 0);
        }
        if state.ready.is_empty() {
            return state.peak;
        }
        let mut best = u64::MAX;
        for operator in state.ready.clone() {
            order.push(operator);
            best = best.min(brute_force(program, order));
            order.pop();
        }
        best
    }

    #[test]
    fn branches_run_one_after_the_other() {
        // Two branches that swell and shrink: interleaved they need both swells.
        let wide = program(&[(&[], 1), (&[0], 100), (&[0], 100), (&[1], 1), (&[2], 1), (&[3, 4], 1)]);
        let found = least_peak(&wide, &[], 1000);
        assert_eq!((found.peak, found.bound), (102, 102));
        assert_eq!(found.order.len(), 6);
    }

    #[test]
    fn nothing_is_better() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..60 {
            let mut list: Vec<(Vec<u32>, u64)> = Vec::new();
            for at in 0..rng.u32(1..9) {
                let mut reads: Vec<u32> = (0..at).filter(|_| rng.u8(0..3) == 0).collect();
                reads.truncate(3);
                list.push((reads, rng.u64(0..50)));
            }
            let borrowed: Vec<(&[u32], u64)> = list.iter().map(|(reads, bytes)| (&reads[..], *bytes)).collect();
            let program = program(&borrowed);
            let found = least_peak(&program, &[], 10_000);
            assert_eq!(found.peak, brute_force(&program, &mut Vec::new()), "{list:?}");
            assert_eq!(found.bound, found.peak);
            let extra = |operator: u32| program.value(operator).bytes;
            assert!(spikes::least_peak(&program, &extra, u64::MAX) <= found.peak, "{list:?}");
            assert!(least_peak(&program, &[], 1).peak >= found.peak);
        }
    }
}
