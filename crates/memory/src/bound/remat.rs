//! Lower bound on peak memory over all schedules, with rematerialisation: best-first search backwards over live sets.
//!
//! In any live set, one value was written last. While its operator ran, the other values of the set and the operator's
//! operands, results and workspace were live. The other values and the operands are the preceding live set, and so on
//! back to the empty set. The footprint of such a chain is its largest sum of live bytes; the minimum over all chains
//! bounds the peak of every schedule, however often it recomputes a value. The search expands the set with the
//! smallest footprint first; when its budget is exhausted, the smallest footprint in the queue is a valid bound too.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use crate::program::{Operator, Program, ValueIndex};
use edgecut_graph::units::Bytes;

/// Values that are live together, ascending.
type LiveSet = Vec<ValueIndex>;

/// Number of searches that start from the operands of an operator; those with the largest operands are used.
const STARTS: usize = 64;

/// A lower bound on the peak of every schedule of `program` without copies to a host. Expands at most `2 · budget` live
/// sets.
pub fn peak_bound(program: &Program, budget: usize) -> Bytes {
    let search = BackwardSearch::new(program);
    let is_written = |value: &ValueIndex| program.value(*value).producer.is_some();
    let results: LiveSet =
        (0..program.values.len() as u32).filter(|v| program.value(*v).result && is_written(v)).collect();
    let mut bound = search.bound(results, program.peak_bound().0, budget);
    let operands = |operator: &Operator| operator.reads.iter().copied().filter(is_written).collect::<LiveSet>();
    let mut sets: Vec<LiveSet> = program.operators.iter().map(operands).filter(|set| set.len() > 1).collect();
    sets.sort_by_key(|set| Reverse(search.bytes(set)));
    for mut set in sets.into_iter().take(STARTS) {
        set.sort_unstable();
        set.dedup();
        bound = bound.max(search.bound(set, 0, budget / STARTS));
    }
    Bytes(bound)
}

struct BackwardSearch<'a> {
    program: &'a Program,
    /// By value: whether another value shares its storage.
    is_replaced: Vec<bool>,
}

impl<'a> BackwardSearch<'a> {
    fn new(program: &'a Program) -> BackwardSearch<'a> {
        let mut storages = vec![0u32; program.values.iter().map(|v| v.storage as usize + 1).max().unwrap_or(0)];
        program.values.iter().for_each(|value| storages[value.storage as usize] += 1);
        let is_replaced = program.values.iter().map(|value| storages[value.storage as usize] > 1).collect();
        BackwardSearch { program, is_replaced }
    }

    /// A lower bound in bytes, at least `floor`, on the peak of every schedule in which all values of `last` are live
    /// together. Reaches at most `budget` live sets.
    fn bound(&self, last: LiveSet, floor: u64, budget: usize) -> u64 {
        // By set: the smallest peak of a chain that reaches it.
        let mut reached: HashMap<LiveSet, u64> = HashMap::new();
        // Ordered by the peak so far, then by the index of the last producer.
        let mut open: BinaryHeap<Reverse<(u64, usize, LiveSet)>> = BinaryHeap::new();
        open.push(Reverse((floor, self.last_producer(&last), last)));
        while let Some(Reverse((peak, _, set))) = open.pop() {
            if set.is_empty() || reached.len() >= budget {
                return peak;
            }
            for (need, before) in self.predecessors(&set, peak) {
                let peak = peak.max(need);
                if reached.get(&before).is_none_or(|lowest| peak < *lowest) {
                    reached.insert(before.clone(), peak);
                    open.push(Reverse((peak, self.last_producer(&before), before)));
                }
            }
        }
        floor
    }

    fn bytes(&self, set: &[ValueIndex]) -> u64 {
        set.iter().map(|&value| self.program.value(value).bytes.0).sum()
    }

    /// One more than the index of the last operator that writes a value of the set.
    fn last_producer(&self, set: &[ValueIndex]) -> usize {
        set.iter().filter_map(|&value| self.program.value(value).producer).max().map_or(0, |last| last as usize + 1)
    }

    /// For each operator that may have run last: the bytes live while it ran, and the set live before it.
    ///
    /// If the set before an operator is no larger than `set` and stays under `peak`, that predecessor alone suffices: it
    /// dominates all others.
    fn predecessors(&self, set: &[ValueIndex], peak: u64) -> Vec<(u64, LiveSet)> {
        let mut found: Vec<(u64, LiveSet)> = Vec::new();
        let mut operators: Vec<u32> = set.iter().filter_map(|&value| self.program.value(value).producer).collect();
        operators.sort_unstable();
        operators.dedup();
        let now = self.bytes(set);
        for &operator in operators.iter().rev() {
            let run = self.program.operator(operator);
            let kept = set.iter().copied().filter(|value| !run.writes.contains(value));
            let is_destroyed = |value: ValueIndex| {
                let storage = self.program.value(value).storage;
                run.writes.iter().any(|&write| self.program.value(write).storage == storage)
            };
            let mut before: LiveSet = kept.collect();
            if before.iter().any(|&value| is_destroyed(value)) {
                continue;
            }
            let operands = run.reads.iter().copied().filter(|&read| self.program.value(read).producer.is_some());
            let new: Vec<ValueIndex> = operands.filter(|read| !before.contains(read)).collect();
            let is_free = new.iter().all(|&value| !self.is_replaced[value as usize]);
            before.extend(new);
            before.sort_unstable();
            let overwritten: u64 = run
                .writes
                .iter()
                .filter_map(|&write| self.program.value(write).replaces)
                .filter(|old| run.reads.contains(old))
                .map(|old| self.program.value(old).bytes.0)
                .sum();
            let live_before = self.bytes(&before);
            let resident = self.program.resident.0;
            let need = resident + live_before + self.bytes(&run.writes) + run.workspace.0 - overwritten;
            if is_free && live_before <= now && need <= peak {
                return vec![(need, before)];
            }
            found.push((need, before));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::program::Value;

    /// The minimum peak over all schedules with any number of recomputations that end with all `wanted` values live.
    fn brute_force(program: &Program, wanted: &[ValueIndex]) -> u64 {
        let mut open = BinaryHeap::from([Reverse((0, LiveSet::new()))]);
        let mut seen: HashMap<LiveSet, u64> = HashMap::new();
        while let Some(Reverse((peak, there))) = open.pop() {
            if wanted.iter().all(|wanted| there.contains(wanted)) {
                return peak;
            }
            if seen.insert(there.clone(), peak).is_some() {
                continue;
            }
            for gone in 0..there.len() {
                let mut less = there.clone();
                less.remove(gone);
                open.push(Reverse((peak, less)));
            }
            for operator in &program.operators {
                if operator.reads.iter().all(|read| there.contains(read)) {
                    let mut more: LiveSet = there.clone();
                    let old: Vec<u32> = operator.writes.iter().filter_map(|w| program.value(*w).replaces).collect();
                    let storage = |v: &u32| program.value(*v).storage;
                    more.retain(|v| !operator.writes.iter().any(|w| storage(w) == storage(v)));
                    more.extend(&operator.writes);
                    more.sort_unstable();
                    let kept = there.iter().filter(|v| !old.contains(v) && !operator.writes.contains(v));
                    let bytes: u64 = kept.chain(&operator.writes).map(|v| program.value(*v).bytes.0).sum();
                    open.push(Reverse((peak.max(bytes + operator.workspace.0), more)));
                }
            }
        }
        u64::MAX
    }

    #[test]
    fn no_schedule_is_below_the_bound() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..200 {
            let mut program = Program::default();
            let count = rng.u32(1..8);
            let mut overwritten: Vec<u32> = Vec::new();
            for index in 0..count {
                let reads: SmallVec<[u32; 4]> = (0..index).filter(|_| rng.u8(0..3) == 0).collect();
                // In place of the first operand, unless another operator overwrites that.
                let old = reads.first().copied().filter(|old| rng.bool() && !overwritten.contains(old));
                overwritten.extend(old);
                let bytes = old.map_or(Bytes(rng.u64(0..5)), |old| program.values[old as usize].bytes);
                let storage = old.map_or(index, |old| program.values[old as usize].storage);
                let operator =
                    Operator { reads, workspace: Bytes(rng.u64(0..3)), repeatable: true, ..Operator::default() };
                program.operators.push(operator);
                program.operators[index as usize].writes.push(index);
                let result = index + 1 == count;
                program.values.push(Value { bytes, producer: Some(index), result, replaces: old, storage });
            }
            let results = brute_force(&program, &[count - 1]);
            // Every operator runs at least once.
            let each = (0..count).map(|value| brute_force(&program, &[value])).max().unwrap();
            let least = Bytes(each).max(program.peak_bound());
            let found = peak_bound(&program, usize::MAX);
            assert!(found <= least, "{found} > {least}: {program:?}");
            // Without overwriting, the bound is tight for the result.
            let plain = overwritten.is_empty();
            assert!(!plain || found >= Bytes(results), "{found} < {results} B: {program:?}");
            assert!(peak_bound(&program, 3) <= found);
        }
    }

    #[test]
    fn results_of_branches_are_live_together() {
        // Three branches with a large intermediate each that are joined: whichever runs last, the others' results are live.
        let mut program = Program::default();
        let operators: [(&[u32], u64); 7] =
            [(&[], 1), (&[0], 50), (&[1], 10), (&[0], 50), (&[3], 10), (&[0], 50), (&[5], 10)];
        let join: (&[u32], u64) = (&[2, 4, 6], 30);
        for (index, (reads, bytes)) in (0..).zip(operators.into_iter().chain([join])) {
            let mut operator = Operator { reads: SmallVec::from_slice(reads), ..Operator::default() };
            operator.writes.push(index);
            program.operators.push(operator);
            let value = Value {
                bytes: Bytes(bytes),
                producer: Some(index),
                result: index == 7,
                replaces: None,
                storage: index,
            };
            program.values.push(value);
        }
        assert_eq!(program.peak_bound(), Bytes(60));
        assert_eq!(peak_bound(&program, 1000), Bytes(80));
    }
}
