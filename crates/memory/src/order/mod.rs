//! The operator order of minimum peak: dynamic programming over sets of executed operators, level by level.
//!
//! All orders of the same operators leave the same values live, so only the one with the lowest peak is kept per set. An
//! operator that fits under the peak so far and leaves no more bytes live runs at once. Series-parallel graphs and
//! graphs with narrow cuts have few sets per level, and then the result is exact; a level with more sets than the width
//! is pruned to a beam. Searches under decreasing limits then raise the lower bound, which starts from the
//! [minimum cut](crate::bound::min_cut).

mod search;
mod sources;

use crate::{
    bound::min_cut,
    program::{OperatorIndex, Program},
};
use edgecut_graph::{Alias, units::Bytes};
use search::{OrderOutcome, OrderSearch};

/// Bisection steps of the limit.
const BISECTIONS: u32 = 10;

/// An order with its peak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeakOrder {
    pub order: Vec<OperatorIndex>,
    pub peak: Bytes,
    /// Lower bound on the peak over all orders.
    pub bound: Bytes,
}

/// The order of minimum peak, with at most `width` sets per level. `alias` gives the storage reuse of each operator;
/// replaced values of the program itself are not looked at.
///
/// A search without a limit gives a first peak. The limit is then bisected between the bound and the peak: a limit
/// leaves few sets, so searches that were pruned without it are often exhaustive with it.
pub fn min_peak_order(program: &Program, alias: &[Alias], width: usize) -> PeakOrder {
    min_peak_order_until(program, alias, width, &|| false)
}

/// As [`min_peak_order`], but stops with the best order so far, which may be empty, as soon as `late` returns true.
pub fn min_peak_order_until(program: &Program, alias: &[Alias], width: usize, late: &dyn Fn() -> bool) -> PeakOrder {
    let search = OrderSearch::new(program, alias);
    let OrderOutcome::Found(mut order, mut peak) = search.within(Bytes(u64::MAX), width, late) else {
        return PeakOrder { order: Vec::new(), peak: program.resident, bound: program.resident };
    };
    let mut lower = search.single_operator_bound();
    if lower < peak && !late() {
        let extra = |operator| search.extra(operator);
        lower = lower.max(min_cut::peak_bound(program, &extra, peak));
    }
    let (mut low, mut high) = (lower.min(peak).0, peak.0);
    for step in 0..=BISECTIONS {
        if low >= peak.0 || (low >= high && step < BISECTIONS) {
            continue;
        }
        // The last step decides whether the order found is optimal.
        let limit = if step == BISECTIONS { peak.0 - 1 } else { low + (high - low) / 2 };
        match search.within(Bytes(limit), width, late) {
            OrderOutcome::Found(better, lower) => {
                high = lower.0;
                (order, peak) = (better, lower);
            }
            OrderOutcome::Impossible => low = low.max(limit + 1),
            OrderOutcome::Unknown => high = limit,
        }
    }
    PeakOrder { order, peak, bound: Bytes(low).min(peak) }
}

#[cfg(test)]
mod tests {
    use super::{search::OrderSearch, *};
    use smallvec::SmallVec;

    use crate::program::{Operator, Value};

    /// Operators as (reads, bytes written); values without readers are results.
    fn program(operators: &[(&[u32], u64)]) -> Program {
        let mut program = Program::default();
        for (index, (reads, bytes)) in (0..).zip(operators) {
            let mut operator = Operator { reads: SmallVec::from_slice(reads), ..Operator::default() };
            operator.writes.push(index);
            program.operators.push(operator);
            let result = !operators.iter().any(|o| o.0.contains(&index));
            program.values.push(Value {
                bytes: Bytes(*bytes),
                producer: Some(index),
                result,
                replaces: None,
                storage: index,
            });
        }
        program
    }

    /// Whether a value has a reader that is not done, or is a result.
    fn wanted(program: &Program, done: &[u32], value: u32) -> bool {
        let mut waiting = (0..program.operators.len() as u32).filter(|o| !done.contains(o));
        program.value(value).result || waiting.any(|o| program.operator(o).reads.contains(&value))
    }

    /// Bytes of the values that were written and are still wanted.
    fn live(program: &Program, done: &[u32]) -> u64 {
        let there = done.iter().filter(|&&value| wanted(program, done, value));
        there.map(|&value| program.value(value).bytes.0).sum()
    }

    /// Bytes live while an operator runs after those of `done`.
    fn during(program: &Program, alias: &[Alias], done: &[u32], operator: u32) -> u64 {
        let written = program.value(operator).bytes;
        let after = [done, &[operator]].concat();
        let dies = |&read: &u32| !wanted(program, &after, read) && program.value(read).bytes == written;
        let over = alias[operator as usize] == Alias::InPlace && program.operator(operator).reads.iter().any(dies);
        live(program, done) + program.operator(operator).workspace.0 + if over { 0 } else { written.0 }
    }

    /// The minimum peak over all orders.
    fn brute_force(program: &Program, alias: &[Alias], order: &mut Vec<u32>) -> u64 {
        let ready = |&o: &u32| !order.contains(&o) && program.operator(o).reads.iter().all(|read| order.contains(read));
        let ready: Vec<u32> = (0..program.operators.len() as u32).filter(ready).collect();
        if ready.is_empty() {
            return live(program, order);
        }
        let mut best = u64::MAX;
        for operator in ready {
            let peak = during(program, alias, order, operator);
            order.push(operator);
            best = best.min(brute_force(program, alias, order).max(peak));
            order.pop();
        }
        best
    }

    #[test]
    fn branches_are_not_interleaved() {
        // Two branches with a large intermediate each: interleaved, both are live.
        let wide = program(&[(&[], 1), (&[0], 100), (&[0], 100), (&[1], 1), (&[2], 1), (&[3, 4], 1)]);
        let found = min_peak_order(&wide, &[], 1000);
        assert_eq!((found.peak, found.bound), (Bytes(102), Bytes(102)));
        assert_eq!(found.order.len(), 6);
    }

    #[test]
    fn the_peak_is_that_of_brute_force() {
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
            program.operators.iter_mut().for_each(|o| o.workspace = Bytes(rng.u64(0..30).saturating_sub(20)));
            let alias: Vec<Alias> =
                list.iter().map(|_| if rng.bool() { Alias::InPlace } else { Alias::Never }).collect();
            let found = min_peak_order(&program, &alias, 10_000);
            assert_eq!(found.peak.0, brute_force(&program, &alias, &mut Vec::new()), "{list:?} {alias:?}");
            assert_eq!(found.bound, found.peak);
            let steps = (0..found.order.len()).map(|at| during(&program, &alias, &found.order[..at], found.order[at]));
            assert_eq!(steps.max().max(Some(live(&program, &found.order))), Some(found.peak.0), "{list:?} {alias:?}");
            let search = OrderSearch::new(&program, &alias);
            assert!(
                min_cut::peak_bound(&program, &|o| search.extra(o), Bytes(u64::MAX)) <= found.peak,
                "{list:?} {alias:?}"
            );
            assert!(min_peak_order(&program, &alias, 1).peak >= found.peak);
        }
    }

    #[test]
    fn sources_run_before_their_first_use() {
        // Four weights, each produced in two in-place steps and read by one operator of a chain.
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
        let found = min_peak_order(&weights, &[Alias::InPlace; 13], 1);
        assert_eq!((found.peak, found.bound), (Bytes(108), Bytes(108)));
        assert_eq!(found.order, [8, 0, 1, 9, 2, 3, 10, 4, 5, 11, 6, 7, 12]);
    }
}
