//! Dynamic programming over sets of executed operators, level by level, as a beam of bounded width.

use std::collections::hash_map::Entry;

use foldhash::HashMap;
use smallvec::SmallVec;

use super::sources::sources;
use crate::program::{Operator, OperatorIndex, Program};
use edgecut_graph::{Alias, units::Bytes};

/// The result of a search for an order within a limit.
pub(super) enum OrderOutcome {
    /// An order and its peak.
    Found(Vec<OperatorIndex>, Bytes),
    /// No order keeps the limit.
    Impossible,
    /// Sets were pruned, and no order was found among the rest.
    Unknown,
}

/// The search space of one program.
pub(super) struct OrderSearch<'a> {
    program: &'a Program,
    alias: &'a [Alias],
    before: Vec<SmallVec<[OperatorIndex; 4]>>,
    after: Vec<SmallVec<[OperatorIndex; 4]>>,
    readers: Vec<SmallVec<[OperatorIndex; 4]>>,
    /// A random number per operator; the key of a set is the exclusive or of its members' numbers.
    keys: Vec<u128>,
    /// For each value the operators that produce it from nothing; these are not members of sets.
    sources: Vec<SmallVec<[OperatorIndex; 2]>>,
    is_source: Vec<bool>,
}

/// A set of executed operators with the best order found for it.
#[derive(Clone)]
struct ExecutedSet {
    done: SmallVec<[u64; 8]>,
    key: u128,
    ready: Vec<ReadyOperator>,
    live: u64,
    peak: u64,
    /// Index of the last operator and its predecessor state.
    link: u32,
}

/// An operator whose predecessors have run, and its effect on the live bytes. The effect depends on few other operators,
/// so it is cached.
#[derive(Clone, Copy)]
struct ReadyOperator {
    operator: OperatorIndex,
    /// Additional bytes while it runs.
    during: u64,
    /// Change of the live bytes when it has run.
    after: i64,
}

/// A candidate for the next level.
struct Successor {
    peak: u64,
    live: u64,
    key: u128,
    /// Index of the state that it extends, and the operator that runs.
    from: u32,
    operator: OperatorIndex,
}

impl<'a> OrderSearch<'a> {
    pub(super) fn new(program: &'a Program, alias: &'a [Alias]) -> OrderSearch<'a> {
        let mut readers: Vec<SmallVec<[OperatorIndex; 4]>> = vec![SmallVec::new(); program.values.len()];
        for (index, operator) in (0..).zip(&program.operators) {
            operator.reads.iter().for_each(|&read| readers[read as usize].push(index));
        }
        let sources = sources(program, alias, &readers);
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
        OrderSearch { program, alias, before, after, readers, keys, sources, is_source }
    }

    /// An order whose peak is within `limit`, the lowest that a beam of `width` sets finds; stops early if `late`.
    pub(super) fn within(&self, limit: Bytes, width: usize, late: &dyn Fn() -> bool) -> OrderOutcome {
        let mut links: Vec<(u32, OperatorIndex)> = vec![(0, 0)];
        let mut states = vec![self.start()];
        let mut complete = true;
        let mut touched = vec![false; self.program.operators.len()];
        let mut index_of: HashMap<u128, usize> = HashMap::default();
        for _ in 0..self.levels() {
            if late() {
                return OrderOutcome::Unknown;
            }
            let mut next = self.successors(&states, limit.0, &mut index_of);
            let order = |next: &Successor| (next.peak, next.live, next.key);
            if next.len() > width {
                next.select_nth_unstable_by_key(width, order);
                next.truncate(width);
                complete = false;
            }
            next.sort_unstable_by_key(order);
            let extended = next.iter().map(|next| {
                let from = &states[next.from as usize];
                links.push((from.link, next.operator));
                let mut state = self.after(from, next.operator, next.live, &mut touched);
                (state.peak, state.link) = (next.peak, links.len() as u32 - 1);
                state
            });
            states = extended.collect();
        }
        let Some(last) = states.first() else {
            return if complete { OrderOutcome::Impossible } else { OrderOutcome::Unknown };
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
        OrderOutcome::Found(self.with_sources(&order), Bytes(last.peak))
    }

    /// The sets with one more operator, each with the lowest peak by which it is reached.
    fn successors(&self, states: &[ExecutedSet], limit: u64, index_of: &mut HashMap<u128, usize>) -> Vec<Successor> {
        let mut next: Vec<Successor> = Vec::new();
        index_of.clear();
        for (from, state) in (0..).zip(states) {
            let enough = if limit == u64::MAX { state.peak } else { limit };
            // An operator that fits and leaves no more bytes live can run at once: no order gains by waiting.
            let free = |ready: &&ReadyOperator| state.live + ready.during <= enough && ready.after <= 0;
            let tried = state.ready.iter().find(free).map_or(&state.ready[..], std::slice::from_ref);
            for ready in tried {
                let peak = state.peak.max(state.live + ready.during);
                if peak > limit {
                    continue;
                }
                let operator = ready.operator;
                let (live, key) =
                    (state.live.saturating_add_signed(ready.after), state.key ^ self.keys[operator as usize]);
                let candidate = Successor { peak, live, key, from, operator };
                match index_of.entry(key) {
                    Entry::Vacant(entry) => {
                        entry.insert(next.len());
                        next.push(candidate);
                    }
                    Entry::Occupied(entry) if peak < next[*entry.get()].peak => next[*entry.get()] = candidate,
                    Entry::Occupied(_) => {}
                }
            }
        }
        next
    }

    /// The number of operators that the search orders.
    fn levels(&self) -> usize {
        let sources = self.is_source.iter().filter(|is_source| **is_source).count();
        self.program.operators.len() - self.first().count() - sources
    }

    /// Inserts the sources of every value before its first use.
    fn with_sources(&self, order: &[OperatorIndex]) -> Vec<OperatorIndex> {
        let mut inserted = vec![false; self.program.operators.len()];
        let mut full = Vec::with_capacity(inserted.len());
        for &operator in order {
            let reads = &self.program.operator(operator).reads;
            for &source in reads.iter().flat_map(|&read| &self.sources[read as usize]) {
                if !std::mem::replace(&mut inserted[source as usize], true) {
                    full.push(source);
                }
            }
            full.push(operator);
        }
        full
    }

    /// The operators that are pinned to the beginning of every order.
    fn first(&self) -> impl Iterator<Item = OperatorIndex> {
        (0..).zip(&self.program.operators).filter(|(_, operator)| operator.first).map(|(index, _)| index)
    }

    fn start(&self) -> ExecutedSet {
        let count = self.program.operators.len();
        let words = count.div_ceil(64);
        let live = self.program.resident.0 + self.inputs();
        let none =
            ExecutedSet { done: SmallVec::from_elem(0, words), key: 0, ready: Vec::new(), live, peak: live, link: 0 };
        let is_ready =
            |operator: &u32| self.before[*operator as usize].is_empty() && !self.is_source[*operator as usize];
        let ready = (0..count as u32).filter(is_ready).map(|operator| self.ready(&none.done, operator)).collect();
        let mut state = ExecutedSet { ready, ..none };
        let mut touched = vec![false; count];
        for operator in self.first() {
            let ReadyOperator { during, after, .. } = self.ready(&state.done, operator);
            let peak = state.peak.max(state.live + during);
            state = self.after(&state, operator, state.live.saturating_add_signed(after), &mut touched);
            state.peak = peak;
        }
        state
    }

    /// Bytes of values that exist from the beginning and are freed after their last use.
    fn inputs(&self) -> u64 {
        self.program.values.iter().filter(|v| v.producer.is_none()).map(|v| v.bytes.0).sum()
    }

    /// The effect of an operator on the live bytes when the operators of `done` have run.
    fn ready(&self, done: &[u64], operator: OperatorIndex) -> ReadyOperator {
        let program = self.program;
        let run = program.operator(operator);
        let size = |value: &u32| program.value(*value).bytes.0;
        let missing = |read: &&u32| self.sources[**read as usize].last().is_some_and(|&source| !has(done, source));
        let sources: u64 = run.reads.iter().filter(missing).map(size).sum();
        let written: u64 = run.writes.iter().map(size).sum();
        let dies = |&&read: &&u32| {
            let mut readers = self.readers[read as usize].iter();
            !program.value(read).result && readers.all(|&r| r == operator || has(done, r))
        };
        let dying: SmallVec<[u32; 4]> = run.reads.iter().filter(dies).copied().collect();
        let freed: u64 = dying.iter().map(size).sum();
        let during = sources + written + run.workspace.0 - self.reused(operator, dying);
        let unused = |write: &&u32| !program.value(**write).result && self.readers[**write as usize].is_empty();
        let unused: u64 = run.writes.iter().filter(unused).map(size).sum();
        ReadyOperator { operator, during, after: (sources + written) as i64 - (freed + unused) as i64 }
    }

    /// Bytes of the operands in `dying` that the results of an operator overwrite.
    fn reused(&self, operator: OperatorIndex, mut dying: SmallVec<[u32; 4]>) -> u64 {
        let run = self.program.operator(operator);
        let size = |value: u32| self.program.value(value).bytes.0;
        if self.alias.get(operator as usize) == Some(&Alias::Concat) {
            let of = |values: &[u32]| values.iter().map(|&value| size(value)).sum::<u64>();
            return of(&dying).min(of(&run.writes));
        }
        let mut reused = 0;
        for bytes in run.writes.iter().map(|&write| size(write)) {
            let over = match self.alias.get(operator as usize) {
                Some(Alias::InPlace) => dying.iter().position(|&old| size(old) == bytes),
                // Larger operands count as fitting: this underestimates the live bytes, never overestimates them.
                Some(Alias::InPlaceFirst) => {
                    dying.iter().position(|&old| run.reads.first() == Some(&old) && size(old) >= bytes)
                }
                _ => None,
            };
            if let Some(at) = over {
                dying.swap_remove(at);
                reused += bytes;
            }
        }
        reused
    }

    /// Lower bound on the peak of every order: the needs of a single operator, with as much reuse as possible.
    pub(super) fn single_operator_bound(&self) -> Bytes {
        let program = self.program;
        let need = |(index, operator): (u32, &Operator)| {
            let reads: Bytes = operator.reads.iter().map(|&read| program.value(read).bytes).sum();
            reads + self.extra(index)
        };
        let results: Bytes = program.values.iter().filter(|v| v.result).map(|v| v.bytes).sum();
        let single = (0..).zip(&program.operators).map(need).max().unwrap_or_default();
        program.resident + single.max(results)
    }

    /// Bytes that an operator needs in addition to those live before it, with as much reuse as possible.
    pub(super) fn extra(&self, index: OperatorIndex) -> Bytes {
        let operator = self.program.operator(index);
        let written: u64 = operator.writes.iter().map(|&write| self.program.value(write).bytes.0).sum();
        Bytes(written + operator.workspace.0 - self.reused(index, operator.reads.iter().copied().collect()))
    }

    /// The state after one more operator; the caller sets peak and link. `touched` is all false before and after.
    fn after(&self, state: &ExecutedSet, operator: OperatorIndex, live: u64, touched: &mut [bool]) -> ExecutedSet {
        let mut done = state.done.clone();
        let mut mark = |operator: OperatorIndex| done[operator as usize / 64] |= 1 << (operator % 64);
        mark(operator);
        let reads = &self.program.operator(operator).reads;
        reads.iter().flat_map(|&read| &self.sources[read as usize]).for_each(|&source| mark(source));
        // Other readers of the same values may now be the last ones, or find a source already run.
        let siblings = || reads.iter().flat_map(|&read| &self.readers[read as usize]);
        siblings().for_each(|&other| touched[other as usize] = true);
        let kept = state.ready.iter().filter(|ready| ready.operator != operator);
        let updated = |ready: &ReadyOperator| match touched[ready.operator as usize] {
            true => self.ready(&done, ready.operator),
            false => *ready,
        };
        let mut ready: Vec<ReadyOperator> = Vec::with_capacity(state.ready.len() + self.after[operator as usize].len());
        ready.extend(kept.map(updated));
        siblings().for_each(|&other| touched[other as usize] = false);
        let free = |next: &&u32| self.before[**next as usize].iter().all(|&before| has(&done, before));
        ready.extend(self.after[operator as usize].iter().filter(free).map(|&next| self.ready(&done, next)));
        let key = state.key ^ self.keys[operator as usize];
        ExecutedSet { ready, key, live, peak: state.peak, link: state.link, done }
    }
}

fn has(done: &[u64], operator: OperatorIndex) -> bool {
    done[operator as usize / 64] >> (operator % 64) & 1 == 1
}
