//! The order of least peak: dynamic programming over the sets of operators that are done, level by level.
//!
//! Two orders of the same operators leave the same values behind, so only the one with the lower peak is kept. An
//! operator that can run within the peak so far and leaves no more memory in use than before runs at once: no
//! order gains by waiting. What needs nothing to be made is made right before it is first read, since no order gains by
//! making it earlier. Narrow waists and series-parallel graphs keep the levels small, and then the result is
//! exact; where a level has more sets than the width allows, the lowest are kept, and it is a beam. Searches under
//! a limit then find out how far the peak is from the least one, beginning at the bound of [`spikes`].

use std::collections::hash_map::Entry;

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
    ready: Vec<Ready>,
    now: u64,
    peak: u64,
    /// The last operator and the state before it.
    link: u32,
}

/// An operator that can run next, and what it does to the memory in use: it depends on few others, so it is kept.
#[derive(Clone, Copy)]
struct Ready {
    operator: OperatorIndex,
    /// Bytes in use while it runs, beyond those before it.
    during: u64,
    /// Bytes in use after it, less those before it.
    after: i64,
}

/// A state that may come next.
struct Next {
    peak: u64,
    now: u64,
    key: u128,
    /// The place of the state before it, and what runs.
    from: u32,
    operator: OperatorIndex,
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
    least_peak_until(program, reuse, width, &|| false)
}

/// As [`least_peak`], but ends with the best order so far, which may be none, as soon as `late` says so.
pub fn least_peak_until(program: &Program, reuse: &[Reuse], width: usize, late: &dyn Fn() -> bool) -> Ordered {
    let search = Search::new(program, reuse);
    let mut best = match search.within(u64::MAX, width, late) {
        Outcome::Found(found) => found,
        _ => return Ordered { order: Vec::new(), peak: program.resident, bound: program.resident },
    };
    let mut lower = search.single();
    if lower < best.peak && !late() {
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
        match search.within(limit, width, late) {
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
    fn within(&self, limit: u64, width: usize, late: &dyn Fn() -> bool) -> Outcome {
        let mut links: Vec<(u32, OperatorIndex)> = vec![(0, 0)];
        let mut states = vec![self.start()];
        let mut complete = true;
        let mut touched = vec![false; self.program.operators.len()];
        let mut place_of: HashMap<u128, usize> = HashMap::default();
        for _ in 0..self.levels() {
            if late() {
                return Outcome::Unknown;
            }
            let mut next: Vec<Next> = Vec::new();
            place_of.clear();
            for (from, state) in (0..).zip(&states) {
                let enough = if limit == u64::MAX { state.peak } else { limit };
                let free = |ready: &&Ready| state.now + ready.during <= enough && ready.after <= 0;
                let tried = state.ready.iter().find(free).map_or(&state.ready[..], std::slice::from_ref);
                for ready in tried {
                    let peak = state.peak.max(state.now + ready.during);
                    if peak > limit {
                        continue;
                    }
                    let operator = ready.operator;
                    let (now, key) =
                        (state.now.saturating_add_signed(ready.after), state.key ^ self.keys[operator as usize]);
                    let candidate = Next { peak, now, key, from, operator };
                    match place_of.entry(key) {
                        Entry::Vacant(entry) => {
                            entry.insert(next.len());
                            next.push(candidate);
                        }
                        Entry::Occupied(entry) if peak < next[*entry.get()].peak => next[*entry.get()] = candidate,
                        Entry::Occupied(_) => {}
                    }
                }
            }
            let order = |next: &Next| (next.peak, next.now, next.key);
            if next.len() > width {
                next.select_nth_unstable_by_key(width, order);
                next.truncate(width);
                complete = false;
            }
            next.sort_unstable_by_key(order);
            let made = next.iter().map(|next| {
                let from = &states[next.from as usize];
                links.push((from.link, next.operator));
                let mut state = self.after(from, next.operator, next.now, &mut touched);
                (state.peak, state.link) = (next.peak, links.len() as u32 - 1);
                state
            });
            states = made.collect();
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
        Outcome::Found(Ordered { order: self.with_sources(&order), peak: last.peak, bound: 0 })
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
    /// For each value that is made from nothing the operators that do, one after the other in the same bytes.
    sources: Vec<SmallVec<[OperatorIndex; 2]>>,
    /// Whether an operator is one of those: they are no members of sets.
    is_source: Vec<bool>,
}

impl<'a> Search<'a> {
    fn new(program: &'a Program, reuse: &'a [Reuse]) -> Search<'a> {
        let mut readers: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); program.values.len()];
        for (index, operator) in (0..).zip(&program.operators) {
            operator.reads.iter().for_each(|&read| readers[read as usize].push(index));
        }
        let sources = sources(program, reuse, &readers);
        let mut is_source = vec![false; program.operators.len()];
        sources.iter().flatten().for_each(|&source| is_source[source as usize] = true);
        let mut before = program.predecessors();
        before.iter_mut().for_each(|list| list.retain(|earlier| !is_source[*earlier as usize]));
        let mut after: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); before.len()];
        for (operator, list) in (0..).zip(&before) {
            list.iter().for_each(|&earlier| after[earlier as usize].push(operator));
        }
        let mut rng = fastrand::Rng::with_seed(1);
        let keys = before.iter().map(|_| rng.u128(..)).collect();
        Search { program, reuse, before, after, readers, keys, sources, is_source }
    }

    /// How many operators every order chooses one after the other.
    fn levels(&self) -> usize {
        let sources = self.is_source.iter().filter(|is_source| **is_source).count();
        self.program.operators.len() - self.first().count() - sources
    }

    /// An order with what is made from nothing before it is first read.
    fn with_sources(&self, order: &[OperatorIndex]) -> Vec<OperatorIndex> {
        let mut made = vec![false; self.program.operators.len()];
        let mut full = Vec::with_capacity(made.len());
        for &operator in order {
            let reads = &self.program.operator(operator).reads;
            for &source in reads.iter().flat_map(|&read| &self.sources[read as usize]) {
                if !std::mem::replace(&mut made[source as usize], true) {
                    full.push(source);
                }
            }
            full.push(operator);
        }
        full
    }

    /// The operators that begin every order.
    fn first(&self) -> impl Iterator<Item = OperatorIndex> {
        (0..).zip(&self.program.operators).filter(|(_, operator)| operator.first).map(|(index, _)| index)
    }

    fn start(&self) -> State {
        let count = self.program.operators.len();
        let words = count.div_ceil(64);
        let now = self.program.resident + self.inputs();
        let none = State { done: SmallVec::from_elem(0, words), key: 0, ready: Vec::new(), now, peak: now, link: 0 };
        let chosen = |operator: &u32| self.before[*operator as usize].is_empty() && !self.is_source[*operator as usize];
        let ready = (0..count as u32).filter(chosen).map(|operator| self.ready(&none.done, operator)).collect();
        let mut state = State { ready, ..none };
        let mut touched = vec![false; count];
        for operator in self.first() {
            let Ready { during, after, .. } = self.ready(&state.done, operator);
            let peak = state.peak.max(state.now + during);
            state = self.after(&state, operator, state.now.saturating_add_signed(after), &mut touched);
            state.peak = peak;
        }
        state
    }

    /// Bytes of what is there from the beginning and goes after its last use.
    fn inputs(&self) -> u64 {
        self.program.values.iter().filter(|v| v.producer.is_none()).map(|v| v.bytes).sum()
    }

    /// What an operator does to the memory in use after some others.
    fn ready(&self, done: &[u64], operator: OperatorIndex) -> Ready {
        let program = self.program;
        let run = program.operator(operator);
        let size = |value: &u32| program.value(*value).bytes;
        let missing = |read: &&u32| self.sources[**read as usize].last().is_some_and(|&source| !has(done, source));
        let sources: u64 = run.reads.iter().filter(missing).map(size).sum();
        let grown: u64 = run.writes.iter().map(size).sum();
        let dies = |&&read: &&u32| {
            let mut readers = self.readers[read as usize].iter();
            !program.value(read).result && readers.all(|&r| r == operator || has(done, r))
        };
        let dying: SmallVec<[u32; 4]> = run.reads.iter().filter(dies).copied().collect();
        let freed: u64 = dying.iter().map(size).sum();
        let during = sources + grown + run.workspace - self.taken_over(operator, dying);
        let unused = |write: &&u32| !program.value(**write).result && self.readers[**write as usize].is_empty();
        let unused: u64 = run.writes.iter().filter(unused).map(size).sum();
        Ready { operator, during, after: (sources + grown) as i64 - (freed + unused) as i64 }
    }

    /// Bytes that an operator's results take over from operands that die with it.
    fn taken_over(&self, operator: OperatorIndex, mut dying: SmallVec<[u32; 4]>) -> u64 {
        let run = self.program.operator(operator);
        let size = |value: u32| self.program.value(value).bytes;
        if self.reuse.get(operator as usize) == Some(&Reuse::Join) {
            let of = |values: &[u32]| values.iter().map(|&value| size(value)).sum::<u64>();
            return of(&dying).min(of(&run.writes));
        }
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

    /// The state after one more operator, but for its peak and link. `touched` is all false, and is so again afterwards.
    fn after(&self, state: &State, operator: OperatorIndex, now: u64, touched: &mut [bool]) -> State {
        let mut done = state.done.clone();
        let mut mark = |operator: OperatorIndex| done[operator as usize / 64] |= 1 << (operator % 64);
        mark(operator);
        let reads = &self.program.operator(operator).reads;
        reads.iter().flat_map(|&read| &self.sources[read as usize]).for_each(|&source| mark(source));
        // Who reads the same may now be the last to do so, or find a source made.
        let beside = || reads.iter().flat_map(|&read| &self.readers[read as usize]);
        beside().for_each(|&other| touched[other as usize] = true);
        let kept = state.ready.iter().filter(|ready| ready.operator != operator);
        let again = |ready: &Ready| match touched[ready.operator as usize] {
            true => self.ready(&done, ready.operator),
            false => *ready,
        };
        let mut ready: Vec<Ready> = Vec::with_capacity(state.ready.len() + self.after[operator as usize].len());
        ready.extend(kept.map(again));
        beside().for_each(|&other| touched[other as usize] = false);
        let free = |next: &&u32| self.before[**next as usize].iter().all(|&before| has(&done, before));
        ready.extend(self.after[operator as usize].iter().filter(free).map(|&next| self.ready(&done, next)));
        State { ready, key: state.key ^ self.keys[operator as usize], now, peak: state.peak, link: state.link, done }
    }
}

/// For each value whether it can be made from nothing, and by which operators: one that reads nothing, and those after
/// it that each overwrite what only they read. They take no more bytes than the value while they run, so it makes
/// no difference to the peak when they do it, as long as the value is there when it is read; the later the better.
fn sources(
    program: &Program,
    reuse: &[Reuse],
    readers: &[SmallVec<[OperatorIndex; 4]>],
) -> Vec<SmallVec<[OperatorIndex; 2]>> {
    let mut sources: Vec<SmallVec<[OperatorIndex; 2]>> = vec![SmallVec::new(); program.values.len()];
    for (index, operator) in (0..).zip(&program.operators) {
        let [write] = operator.writes[..] else { continue };
        let made = program.value(write);
        let plain = made.replaces.is_none() && !made.result && !readers[write as usize].is_empty();
        if operator.first || operator.workspace > 0 || !plain {
            continue;
        }
        let in_place = reuse.get(index as usize) == Some(&Reuse::InPlace);
        let mut makers = match operator.reads[..] {
            [] => SmallVec::new(),
            [read] if in_place && readers[read as usize].len() == 1 && program.value(read).bytes == made.bytes => {
                std::mem::take(&mut sources[read as usize])
            }
            _ => continue,
        };
        if operator.reads.is_empty() || !makers.is_empty() {
            makers.push(index);
            sources[write as usize] = makers;
        }
    }
    sources
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

    /// Whether somebody reads a value who is not done, or it is a result.
    fn wanted(program: &Program, done: &[u32], value: u32) -> bool {
        let mut waiting = (0..program.operators.len() as u32).filter(|o| !done.contains(o));
        program.value(value).result || waiting.any(|o| program.operator(o).reads.contains(&value))
    }

    /// Bytes of what was made and is still wanted.
    fn live(program: &Program, done: &[u32]) -> u64 {
        let there = done.iter().filter(|&&value| wanted(program, done, value));
        there.map(|&value| program.value(value).bytes).sum()
    }

    /// Bytes in use while an operator runs after some others.
    fn during(program: &Program, reuse: &[Reuse], done: &[u32], operator: u32) -> u64 {
        let made = program.value(operator).bytes;
        let after = [done, &[operator]].concat();
        let dies = |&read: &u32| !wanted(program, &after, read) && program.value(read).bytes == made;
        let over = reuse[operator as usize] == Reuse::InPlace && program.operator(operator).reads.iter().any(dies);
        live(program, done) + program.operator(operator).workspace + if over { 0 } else { made }
    }

    /// The least peak over all orders, by trying each.
    fn brute_force(program: &Program, reuse: &[Reuse], order: &mut Vec<u32>) -> u64 {
        let ready = |&o: &u32| !order.contains(&o) && program.operator(o).reads.iter().all(|read| order.contains(read));
        let ready: Vec<u32> = (0..program.operators.len() as u32).filter(ready).collect();
        if ready.is_empty() {
            return live(program, order);
        }
        let mut best = u64::MAX;
        for operator in ready {
            let peak = during(program, reuse, order, operator);
            order.push(operator);
            best = best.min(brute_force(program, reuse, order).max(peak));
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
        for _ in 0..150 {
            let mut list: Vec<(Vec<u32>, u64)> = Vec::new();
            for at in 0..rng.u32(1..9) {
                let mut reads: Vec<u32> = (0..at).filter(|_| rng.u8(0..3) == 0).collect();
                reads.truncate(3);
                list.push((reads, 10 * rng.u64(0..4)));
            }
            let borrowed: Vec<(&[u32], u64)> = list.iter().map(|(reads, bytes)| (&reads[..], *bytes)).collect();
            let mut program = program(&borrowed);
            program.operators.iter_mut().for_each(|o| o.workspace = rng.u64(0..30).saturating_sub(20));
            let reuse: Vec<Reuse> =
                list.iter().map(|_| if rng.bool() { Reuse::InPlace } else { Reuse::Never }).collect();
            let found = least_peak(&program, &reuse, 10_000);
            assert_eq!(found.peak, brute_force(&program, &reuse, &mut Vec::new()), "{list:?} {reuse:?}");
            assert_eq!(found.bound, found.peak);
            let steps = (0..found.order.len()).map(|at| during(&program, &reuse, &found.order[..at], found.order[at]));
            assert_eq!(steps.max().max(Some(live(&program, &found.order))), Some(found.peak), "{list:?} {reuse:?}");
            let search = Search::new(&program, &reuse);
            assert!(spikes::least_peak(&program, &|o| search.extra(o), u64::MAX) <= found.peak, "{list:?} {reuse:?}");
            assert!(least_peak(&program, &reuse, 1).peak >= found.peak);
        }
    }

    #[test]
    fn what_is_made_from_nothing_waits() {
        // Four weights, each made in two steps in the same bytes, and read by one operator after the other.
        let operators: [(&[u32], u64); 13] = [
            (&[], 8),
            (&[0], 8),
            (&[], 8),
            (&[2], 8),
            (&[], 8),
            (&[4], 8),
            (&[], 8),
            (&[6], 8),
            (&[], 100),
            (&[8, 1], 100),
            (&[9, 3], 100),
            (&[10, 5], 100),
            (&[11, 7], 100),
        ];
        let weights = program(&operators);
        let found = least_peak(&weights, &[Reuse::InPlace; 13], 1);
        assert_eq!((found.peak, found.bound), (108, 108));
        assert_eq!(found.order, [8, 0, 1, 9, 2, 3, 10, 4, 5, 11, 6, 7, 12]);
    }
}
