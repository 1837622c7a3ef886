//! A bound on the peak of every schedule, those that make values again included.
//!
//! Schedules are gone through backwards. Where some values are there together, one of them was made last; when it was, the
//! others were there, and what its operator reads, and its workspace. So before that, these others and what was read were
//! there together, of which again one was made last, and so on to the beginning. Over all ways of saying which was made
//! last, the least of the highest sums is what no schedule can go below, however often it makes a value. It is
//! looked for by the lowest sum first; if that takes too long, the lowest sum of what is left open is a bound too.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use super::program::{Operator, Program, ValueIndex};

/// Values that are there together, in rising order.
type Set = Vec<ValueIndex>;

/// Operators whose operands' way back is looked at by itself: those with the most bytes of them.
const STARTS: usize = 64;

/// No schedule of `program` without copies to a host has a lower peak; looks at no more than twice `most` sets of values.
pub fn least_peak(program: &Program, most: usize) -> u64 {
    let backwards = Backwards::new(program);
    let made = |value: &ValueIndex| program.value(*value).producer.is_some();
    let results: Set = (0..program.values.len() as u32).filter(|v| program.value(*v).result && made(v)).collect();
    let mut bound = backwards.least(results, program.least_peak(), most);
    let reads = |operator: &Operator| operator.reads.iter().copied().filter(made).collect::<Set>();
    let mut sets: Vec<Set> = program.operators.iter().map(reads).filter(|set| set.len() > 1).collect();
    sets.sort_by_key(|set| Reverse(backwards.bytes(set)));
    for mut set in sets.into_iter().take(STARTS) {
        set.sort_unstable();
        set.dedup();
        bound = bound.max(backwards.least(set, 0, most / STARTS));
    }
    bound
}

struct Backwards<'a> {
    program: &'a Program,
    /// By value: whether another one is made in its bytes.
    is_replaced: Vec<bool>,
}

impl<'a> Backwards<'a> {
    fn new(program: &'a Program) -> Backwards<'a> {
        let mut storages = vec![0u32; program.values.iter().map(|v| v.storage as usize + 1).max().unwrap_or(0)];
        program.values.iter().for_each(|value| storages[value.storage as usize] += 1);
        let is_replaced = program.values.iter().map(|value| storages[value.storage as usize] > 1).collect();
        Backwards { program, is_replaced }
    }

    /// No schedule has all values of `last` there at one time with a lower peak, and none is to be below `highest`.
    fn least(&self, last: Set, highest: u64, most: usize) -> u64 {
        // For each set the lowest sum by which it was reached.
        let mut reached: HashMap<Set, u64> = HashMap::new();
        // The highest sum so far, and how much is still to be gone through: the least of both first.
        let mut open: BinaryHeap<Reverse<(u64, usize, Set)>> = BinaryHeap::new();
        open.push(Reverse((highest, self.left(&last), last)));
        while let Some(Reverse((highest, _, set))) = open.pop() {
            if set.is_empty() || reached.len() >= most {
                return highest;
            }
            for (need, before) in self.steps(&set, highest) {
                let highest = highest.max(need);
                if reached.get(&before).is_none_or(|lowest| highest < *lowest) {
                    reached.insert(before.clone(), highest);
                    open.push(Reverse((highest, self.left(&before), before)));
                }
            }
        }
        highest
    }

    fn bytes(&self, set: &[ValueIndex]) -> u64 {
        set.iter().map(|&value| self.program.value(value).bytes).sum()
    }

    /// How far from the beginning the last of some values is made.
    fn left(&self, set: &[ValueIndex]) -> usize {
        set.iter().filter_map(|&value| self.program.value(value).producer).max().map_or(0, |last| last as usize + 1)
    }

    /// For each of some values that can have been made last what was in use then, and what was there before.
    ///
    /// Where that is no more than after it and nothing above `highest`, the one is enough: going back further through
    /// it can wait for nothing.
    fn steps(&self, set: &[ValueIndex], highest: u64) -> Vec<(u64, Set)> {
        let mut found: Vec<(u64, Set)> = Vec::new();
        let mut operators: Vec<u32> = set.iter().filter_map(|&value| self.program.value(value).producer).collect();
        operators.sort_unstable();
        operators.dedup();
        let now = self.bytes(set);
        for &operator in operators.iter().rev() {
            let run = self.program.operator(operator);
            let kept = set.iter().copied().filter(|value| !run.writes.contains(value));
            // What is made in a value's bytes ends it.
            let ends = |value: ValueIndex| {
                let storage = self.program.value(value).storage;
                run.writes.iter().any(|&write| self.program.value(write).storage == storage)
            };
            let mut before: Set = kept.collect();
            if before.iter().any(|&value| ends(value)) {
                continue;
            }
            let made_of = run.reads.iter().copied().filter(|&read| self.program.value(read).producer.is_some());
            let new: Vec<ValueIndex> = made_of.filter(|read| !before.contains(read)).collect();
            let is_free = new.iter().all(|&value| !self.is_replaced[value as usize]);
            before.extend(new);
            before.sort_unstable();
            let over: u64 = run
                .writes
                .iter()
                .filter_map(|&write| self.program.value(write).replaces)
                .filter(|old| run.reads.contains(old))
                .map(|old| self.program.value(old).bytes)
                .sum();
            let beside = self.bytes(&before);
            let need = self.program.resident + beside + self.bytes(&run.writes) + run.workspace - over;
            if is_free && beside <= now && need <= highest {
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
    use crate::memory::program::Value;

    /// The least peak over all ways to run the operators as often as one likes until all of some values are there at one
    /// time, by trying each.
    fn brute_force(program: &Program, wanted: &[ValueIndex]) -> u64 {
        let mut open = BinaryHeap::from([Reverse((0, Set::new()))]);
        let mut seen: HashMap<Set, u64> = HashMap::new();
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
                    let mut more: Set = there.clone();
                    let old: Vec<u32> = operator.writes.iter().filter_map(|w| program.value(*w).replaces).collect();
                    let storage = |v: &u32| program.value(*v).storage;
                    more.retain(|v| !operator.writes.iter().any(|w| storage(w) == storage(v)));
                    more.extend(&operator.writes);
                    more.sort_unstable();
                    let kept = there.iter().filter(|v| !old.contains(v) && !operator.writes.contains(v));
                    let bytes: u64 = kept.chain(&operator.writes).map(|v| program.value(*v).bytes).sum();
                    open.push(Reverse((peak.max(bytes + operator.workspace), more)));
                }
            }
        }
        u64::MAX
    }

    #[test]
    fn nothing_is_lower() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..200 {
            let mut program = Program::default();
            let count = rng.u32(1..8);
            let mut overwritten: Vec<u32> = Vec::new();
            for index in 0..count {
                let reads: SmallVec<[u32; 4]> = (0..index).filter(|_| rng.u8(0..3) == 0).collect();
                // In the bytes of the first operand, if it has no other reader before or after in program order.
                let old = reads.first().copied().filter(|old| rng.bool() && !overwritten.contains(old));
                overwritten.extend(old);
                let bytes = old.map_or(rng.u64(0..5), |old| program.values[old as usize].bytes);
                let storage = old.map_or(index, |old| program.values[old as usize].storage);
                let operator = Operator { reads, workspace: rng.u64(0..3), repeatable: true, ..Operator::default() };
                program.operators.push(operator);
                program.operators[index as usize].writes.push(index);
                let result = index + 1 == count;
                program.values.push(Value { bytes, producer: Some(index), result, replaces: old, storage });
            }
            let results = brute_force(&program, &[count - 1]);
            // Every operator runs once at least.
            let each = (0..count).map(|value| brute_force(&program, &[value])).max().unwrap();
            let least = each.max(program.least_peak());
            let found = least_peak(&program, usize::MAX);
            assert!(found <= least, "{found} > {least}: {program:?}");
            // Where nothing is written over it is the least for the result.
            let plain = overwritten.is_empty();
            assert!(!plain || found >= results, "{found} < {results}: {program:?}");
            assert!(least_peak(&program, 3) <= found);
        }
    }

    #[test]
    fn branches_are_held_together() {
        // Three branches, each through something large, that are joined: whichever is made last, the others are there.
        let mut program = Program::default();
        let operators: [(&[u32], u64); 7] =
            [(&[], 1), (&[0], 50), (&[1], 10), (&[0], 50), (&[3], 10), (&[0], 50), (&[5], 10)];
        let join: (&[u32], u64) = (&[2, 4, 6], 30);
        for (index, (reads, bytes)) in (0..).zip(operators.into_iter().chain([join])) {
            let mut operator = Operator { reads: SmallVec::from_slice(reads), ..Operator::default() };
            operator.writes.push(index);
            program.operators.push(operator);
            let value = Value { bytes, producer: Some(index), result: index == 7, replaces: None, storage: index };
            program.values.push(value);
        }
        assert_eq!(program.least_peak(), 60);
        assert_eq!(least_peak(&program, 1000), 80);
    }
}
