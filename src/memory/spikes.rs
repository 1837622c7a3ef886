//! A bound on the peak of every order, from the operators that need most.
//!
//! While an operator runs, what was made before and is read later is there too. The least of that, over all sets of
//! operators that may have run before, is a minimum cut: a value costs its bytes if its producer is on the near side
//! and a reader on the far side. Of two operators that need much, one runs first: with that on the near side the cut of
//! the other is larger, and the smaller one of both ways round bounds every order.

use petgraph::{
    algo::dinics,
    graph::{DiGraph, NodeIndex},
};

use super::program::{OperatorIndex, Program};

/// Operators that are looked at in pairs.
const PAIRED: usize = 12;
/// Beyond so many operators and values the cuts take too long.
const MOST: usize = 20_000;

/// No order of `program` has a lower peak. `extra` is what an operator needs besides all that is there before it;
/// nothing above `enough` is looked for.
pub(super) fn least_peak(program: &Program, extra: &dyn Fn(OperatorIndex) -> u64, enough: u64) -> u64 {
    let replaced = program.values.iter().any(|value| value.replaces.is_some());
    if replaced || program.operators.len() + program.values.len() > MOST {
        return 0;
    }
    let mut cuts = Cuts::new(program);
    let read = |operator: &super::program::Operator| -> u64 {
        operator.reads.iter().map(|&read| program.value(read).bytes).sum()
    };
    let mut largest: Vec<(u64, OperatorIndex)> =
        // What begins every order is there before it begins: it is no operator that others could run before.
        (0..).zip(&program.operators).filter(|(_, operator)| !operator.first)
            .map(|(index, operator)| (read(operator) + extra(index), index)).collect();
    largest.sort_unstable_by_key(|&(need, index)| (std::cmp::Reverse(need), index));
    largest.truncate(PAIRED);
    let mut need = |operator: OperatorIndex, before: Option<OperatorIndex>| {
        cuts.least(operator, before).map_or(u64::MAX, |bytes| program.resident + bytes + extra(operator))
    };
    let mut bound = largest.iter().map(|&(_, operator)| need(operator, None)).max().unwrap_or(0);
    for (place, &(_, one)) in largest.iter().enumerate() {
        for &(_, other) in &largest[..place] {
            if bound >= enough {
                return bound;
            }
            // An operator that needs more than the other way round tells nothing more.
            let first = need(one, Some(other));
            if first > bound {
                bound = bound.max(first.min(need(other, Some(one))));
            }
        }
    }
    bound
}

/// Minimum cuts between operators that have run and such that have not.
struct Cuts {
    network: DiGraph<(), u64>,
    before: Vec<smallvec::SmallVec<[OperatorIndex; 4]>>,
    after: Vec<Vec<OperatorIndex>>,
    /// Operators that begin every order.
    first: Vec<OperatorIndex>,
    source: NodeIndex,
    sink: NodeIndex,
    /// More than all values together.
    endless: u64,
}

impl Cuts {
    fn new(program: &Program) -> Cuts {
        let before = program.predecessors();
        let mut after = vec![Vec::new(); before.len()];
        for (operator, list) in (0..).zip(&before) {
            list.iter().for_each(|&earlier| after[earlier as usize].push(operator));
        }
        let endless = program.values.iter().fold(1u64, |sum, value| sum.saturating_add(value.bytes));
        let mut network = DiGraph::new();
        // First the operators under their own numbers, then the values, then both ends.
        let vertices = program.operators.len() + program.values.len();
        for _ in 0..vertices + 2 {
            network.add_node(());
        }
        let operator = |index: OperatorIndex| NodeIndex::new(index as usize);
        let value = |index: usize| NodeIndex::new(program.operators.len() + index);
        let (source, sink) = (NodeIndex::new(vertices), NodeIndex::new(vertices + 1));
        for (index, held) in program.values.iter().enumerate().filter(|(_, held)| held.bytes > 0) {
            network.add_edge(held.producer.map_or(source, operator), value(index), held.bytes);
            if held.result {
                network.add_edge(value(index), sink, endless);
            }
        }
        for (index, reader) in (0..).zip(&program.operators) {
            for &read in &reader.reads {
                network.add_edge(value(read as usize), operator(index), endless);
            }
            for &earlier in &before[index as usize] {
                network.add_edge(operator(index), operator(earlier), endless);
            }
        }
        let first = (0..).zip(&program.operators).filter(|(_, o)| o.first).map(|(index, _)| index).collect();
        Cuts { network, before, after, first, source, sink, endless }
    }

    /// The least that is there before `operator` runs, if `earlier` ran before it; `None` if that cannot be.
    fn least(&mut self, operator: OperatorIndex, earlier: Option<OperatorIndex>) -> Option<u64> {
        let run = self.closure(self.before[operator as usize].iter().copied().chain(earlier), true);
        let waiting = self.closure(std::iter::once(operator), false);
        if run.iter().any(|ran| waiting.contains(ran)) {
            return None;
        }
        let near = run.iter().chain(&self.first).map(|&o| (self.source, NodeIndex::new(o as usize)));
        let far = waiting.iter().map(|&o| (NodeIndex::new(o as usize), self.sink));
        let ends: Vec<_> = near.chain(far).collect();
        let edges: Vec<_> = ends.into_iter().map(|(from, to)| self.network.add_edge(from, to, self.endless)).collect();
        let (flow, _) = dinics(&self.network, self.source, self.sink);
        // The last edge first, so that the others keep their numbers.
        for edge in edges.into_iter().rev() {
            self.network.remove_edge(edge);
        }
        Some(flow)
    }

    /// The operators and all that must run before them, or after them.
    fn closure(&self, start: impl Iterator<Item = OperatorIndex>, backwards: bool) -> Vec<OperatorIndex> {
        let mut seen = vec![false; self.before.len()];
        let mut found: Vec<OperatorIndex> = Vec::new();
        let mut waiting: Vec<OperatorIndex> = start.collect();
        while let Some(operator) = waiting.pop() {
            if std::mem::replace(&mut seen[operator as usize], true) {
                continue;
            }
            found.push(operator);
            match backwards {
                true => waiting.extend(self.before[operator as usize].iter().copied()),
                false => waiting.extend(&self.after[operator as usize]),
            }
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::memory::program::{Operator, Value};

    #[test]
    fn one_of_two_runs_first() {
        // Twice: 50 bytes are made from nothing in a workspace of 100, and added to what came before.
        let mut program = Program::default();
        for (index, (reads, bytes, workspace)) in
            (0u32..).zip([(&[][..], 50, 100), (&[0], 10, 0), (&[], 50, 100), (&[1, 2], 10, 0)])
        {
            let reads = SmallVec::from_slice(reads);
            program.operators.push(Operator {
                reads,
                workspace,
                writes: [index].into_iter().collect(),
                ..Operator::default()
            });
            program.values.push(Value {
                bytes,
                producer: Some(index),
                result: index == 3,
                replaces: None,
                storage: index,
            });
        }
        let extra = |operator: u32| program.value(operator).bytes + program.operator(operator).workspace;
        // Alone each needs 150; the second one has the first one's 10 beside it.
        assert_eq!(least_peak(&program, &extra, u64::MAX), 160);
        assert_eq!(crate::memory::order::least_peak(&program, &[], 100).peak, 160);
    }

    #[test]
    fn what_is_there_at_the_beginning_is_no_operator_to_wait_for() {
        // An input of 10 bytes, and one operator that makes 1 of it.
        let mut program = Program::default();
        for (index, (reads, bytes, first)) in (0u32..).zip([(&[][..], 10, true), (&[0], 1, false)]) {
            let writes = [index].into_iter().collect();
            program.operators.push(Operator {
                reads: SmallVec::from_slice(reads),
                writes,
                first,
                ..Operator::default()
            });
            let (producer, result) = (Some(index), index == 1);
            program.values.push(Value { bytes, producer, result, replaces: None, storage: index });
        }
        let extra = |operator: u32| program.value(operator).bytes;
        assert_eq!(least_peak(&program, &extra, u64::MAX), 11);
    }
}
