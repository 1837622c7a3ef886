//! Lower bound by minimum cut: bytes live across the start of a high-footprint operator, for the best set of
//! predecessors.
//!
//! When an operator starts, every value that was written before and is read later is live. The minimum of these bytes
//! over all sets of operators that may have run before is a minimum cut: a value costs its bytes if its producer has run
//! and a reader has not. Of two operators with a high footprint, one runs first; the cut of the second, given that the
//! first has run, is larger, and the smaller of both alternatives bounds every order.

use petgraph::{
    algo::dinics,
    graph::{DiGraph, NodeIndex},
};

use crate::program::{Operator, OperatorIndex, Program};
use edgecut_graph::units::Bytes;

/// Operators that are examined in pairs: those with the highest footprint.
const PAIRED: usize = 12;
/// Limit on operators and values, for time.
const MAX_SIZE: usize = 20_000;

/// A lower bound on the peak of every order of `program`. `extra` is what an operator needs in addition to the values
/// live before it. Stops as soon as the bound reaches `enough`. Zero for programs that overwrite values, or are too large.
pub(crate) fn peak_bound(program: &Program, extra: &dyn Fn(OperatorIndex) -> Bytes, enough: Bytes) -> Bytes {
    let replaced = program.values.iter().any(|value| value.replaces.is_some());
    if replaced || program.operators.len() + program.values.len() > MAX_SIZE {
        return Bytes::ZERO;
    }
    let mut cuts = LiveCuts::new(program);
    let read = |operator: &Operator| -> Bytes { operator.reads.iter().map(|&read| program.value(read).bytes).sum() };
    // Pinned operators precede all others, so there is no choice of what has run before them.
    let ordered = (0..).zip(&program.operators).filter(|(_, operator)| !operator.first);
    let mut largest: Vec<(Bytes, OperatorIndex)> =
        ordered.map(|(index, operator)| (read(operator) + extra(index), index)).collect();
    largest.sort_unstable_by_key(|&(need, index)| (std::cmp::Reverse(need), index));
    largest.truncate(PAIRED);
    let mut need = |operator: OperatorIndex, before: Option<OperatorIndex>| {
        let live = cuts.minimum(operator, before);
        live.map_or(Bytes(u64::MAX), |bytes| program.resident + bytes + extra(operator))
    };
    let mut bound = largest.iter().map(|&(_, operator)| need(operator, None)).max().unwrap_or_default();
    for (index, &(_, one)) in largest.iter().enumerate() {
        for &(_, other) in &largest[..index] {
            if bound >= enough {
                return bound;
            }
            // The second cut is needed only if the first can raise the bound.
            let first = need(one, Some(other));
            if first > bound {
                bound = bound.max(first.min(need(other, Some(one))));
            }
        }
    }
    bound
}

/// Minimum cuts between operators that have run and operators that have not.
struct LiveCuts {
    network: DiGraph<(), u64>,
    before: Vec<smallvec::SmallVec<[OperatorIndex; 4]>>,
    after: Vec<Vec<OperatorIndex>>,
    /// Operators that are pinned to the beginning.
    first: Vec<OperatorIndex>,
    source: NodeIndex,
    sink: NodeIndex,
    /// More than all values together.
    infinite: u64,
}

impl LiveCuts {
    fn new(program: &Program) -> LiveCuts {
        let before = program.predecessors();
        let mut after = vec![Vec::new(); before.len()];
        for (operator, list) in (0..).zip(&before) {
            list.iter().for_each(|&earlier| after[earlier as usize].push(operator));
        }
        let infinite = program.values.iter().fold(1u64, |sum, value| sum.saturating_add(value.bytes.0));
        let mut network = DiGraph::new();
        // Operators at their own indices, then values, then source and sink.
        let vertices = program.operators.len() + program.values.len();
        for _ in 0..vertices + 2 {
            network.add_node(());
        }
        let operator = |index: OperatorIndex| NodeIndex::new(index as usize);
        let value = |index: usize| NodeIndex::new(program.operators.len() + index);
        let (source, sink) = (NodeIndex::new(vertices), NodeIndex::new(vertices + 1));
        for (index, held) in program.values.iter().enumerate().filter(|(_, held)| held.bytes > Bytes::ZERO) {
            network.add_edge(held.producer.map_or(source, operator), value(index), held.bytes.0);
            if held.result {
                network.add_edge(value(index), sink, infinite);
            }
        }
        for (index, reader) in (0..).zip(&program.operators) {
            for &read in &reader.reads {
                network.add_edge(value(read as usize), operator(index), infinite);
            }
            for &earlier in &before[index as usize] {
                network.add_edge(operator(index), operator(earlier), infinite);
            }
        }
        let first = (0..).zip(&program.operators).filter(|(_, o)| o.first).map(|(index, _)| index).collect();
        LiveCuts { network, before, after, first, source, sink, infinite }
    }

    /// The minimum bytes live before `operator` starts, given that `earlier` has run; `None` if that is impossible.
    fn minimum(&mut self, operator: OperatorIndex, earlier: Option<OperatorIndex>) -> Option<Bytes> {
        let run = self.closure(self.before[operator as usize].iter().copied().chain(earlier), true);
        let waiting = self.closure(std::iter::once(operator), false);
        if run.iter().any(|ran| waiting.contains(ran)) {
            return None;
        }
        let near = run.iter().chain(&self.first).map(|&o| (self.source, NodeIndex::new(o as usize)));
        let far = waiting.iter().map(|&o| (NodeIndex::new(o as usize), self.sink));
        let ends: Vec<_> = near.chain(far).collect();
        let edges: Vec<_> = ends.into_iter().map(|(from, to)| self.network.add_edge(from, to, self.infinite)).collect();
        let (flow, _) = dinics(&self.network, self.source, self.sink);
        // Last edge first: removing an edge renumbers the last one.
        for edge in edges.into_iter().rev() {
            self.network.remove_edge(edge);
        }
        Some(Bytes(flow))
    }

    /// Operators with all their predecessors, or all their successors.
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
    use crate::program::Value;

    #[test]
    fn one_of_two_runs_first() {
        // Twice: 50 bytes from no operands with a workspace of 100, and a sum with the result before.
        let mut program = Program::default();
        for (index, (reads, bytes, workspace)) in
            (0u32..).zip([(&[][..], 50, 100), (&[0], 10, 0), (&[], 50, 100), (&[1, 2], 10, 0)])
        {
            let reads = SmallVec::from_slice(reads);
            program.operators.push(Operator {
                reads,
                workspace: Bytes(workspace),
                writes: [index].into_iter().collect(),
                ..Operator::default()
            });
            program.values.push(Value {
                bytes: Bytes(bytes),
                producer: Some(index),
                result: index == 3,
                replaces: None,
                storage: index,
            });
        }
        let extra = |operator: u32| program.value(operator).bytes + program.operator(operator).workspace;
        // Each needs 150 by itself; 10 bytes of the other one's result are live across the second.
        assert_eq!(peak_bound(&program, &extra, Bytes(u64::MAX)), Bytes(160));
        assert_eq!(crate::order::min_peak_order(&program, &[], 100).peak, Bytes(160));
    }

    #[test]
    fn inputs_are_not_ordered() {
        // An input of 10 bytes and an operator with a result of 1 byte.
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
            program.values.push(Value { bytes: Bytes(bytes), producer, result, replaces: None, storage: index });
        }
        let extra = |operator: u32| program.value(operator).bytes;
        assert_eq!(peak_bound(&program, &extra, Bytes(u64::MAX)), Bytes(11));
    }
}
