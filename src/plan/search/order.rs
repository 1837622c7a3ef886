//! Topological orders: which group comes first where the graph leaves a choice.

use std::{cmp, collections::BinaryHeap};

use crate::{
    memory::{
        Reuse,
        order::least_peak_until,
        program::{Operator, Program, Value},
    },
    plan::{GroupId, Problem, TensorIndex, bound::critical::Tails},
};

/// Groups of a problem for which an order of least memory is sought.
const MOST_GROUPS: usize = 3_000;
/// The most sets of groups that the search for it looks at on a level, and the evaluations that each of them is worth.
pub const WIDTH: u64 = 60;
pub const EVALUATIONS_A_SET: u64 = 4;

/// The order in which one device that had everything would need the least memory, about, by a search that looks at
/// `width` sets of groups on a level; `None` if that takes too long.
pub fn by_thrift(problem: &Problem, width: usize, late: &dyn Fn() -> bool) -> Option<Vec<GroupId>> {
    if problem.groups.len() > MOST_GROUPS {
        return None;
    }
    let mut program = Program::default();
    for (index, tensor) in (0u32..).zip(&problem.tensors) {
        let (bytes, result) = (tensor.bytes.0, tensor.is_output);
        let producer = tensor.producer.map(|group| group.0);
        program.values.push(Value { bytes, producer, result, replaces: None, storage: index });
    }
    let mut reuse = Vec::with_capacity(problem.groups.len());
    for group in &problem.groups {
        let cost = group.costs.iter().flatten().next().copied().unwrap_or_default();
        let mut reads: Vec<u32> = group.inputs.iter().map(|tensor| tensor.0).collect();
        let view = match group.outputs.as_slice() {
            [output] => problem.tensor(*output).view_of.and_then(|of| reads.iter().position(|read| *read == of.0)),
            _ => None,
        };
        if let Some(view) = view {
            reads.swap(0, view);
        }
        program.operators.push(Operator {
            time: cost.time.0,
            workspace: cost.workspace.0,
            reads: reads.into_iter().collect(),
            writes: group.outputs.iter().map(|tensor| tensor.0).collect(),
            ..Operator::default()
        });
        reuse.push(if view.is_some() { Reuse::View } else { Reuse::Never });
    }
    let ordered = least_peak_until(&program, &reuse, width, late);
    let order: Vec<GroupId> = ordered.order.into_iter().map(GroupId).collect();
    (order.len() == problem.groups.len()).then_some(order)
}

/// A topological order by the longest way to the end, the critical groups first (HEFT's upward rank).
pub fn by_urgency(problem: &Problem, tails: &Tails) -> Vec<GroupId> {
    let rank = |g: GroupId| {
        let (mut sum, mut count) = (0.0, 0.0);
        for device in problem.device_ids() {
            if let Some(cost) = problem.cost(g, device) {
                sum += cost.time.0 + tails.after(g, device);
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 0.0 }
    };
    topological(problem, rank)
}

/// The topological order that takes, of the groups that could come next, the one of the highest rank.
pub fn topological(problem: &Problem, rank: impl Fn(GroupId) -> f64) -> Vec<GroupId> {
    let consumers = problem.consumers();
    let made = |t: &&TensorIndex| problem.tensor(**t).producer.is_some();
    let mut missing: Vec<usize> = problem.groups.iter().map(|g| g.inputs.iter().filter(made).count()).collect();
    let mut ready = BinaryHeap::new();
    let key = |g: GroupId| (Rank(rank(g)), cmp::Reverse(g));
    ready.extend(problem.group_ids().filter(|g| missing[g.0 as usize] == 0).map(key));
    let mut order = Vec::with_capacity(missing.len());
    while let Some((_, cmp::Reverse(next))) = ready.pop() {
        order.push(next);
        for output in &problem.group(next).outputs {
            for reader in &consumers[output.0 as usize] {
                missing[reader.0 as usize] -= 1;
                if missing[reader.0 as usize] == 0 {
                    ready.push(key(*reader));
                }
            }
        }
    }
    order
}

#[derive(Clone, Copy, PartialEq)]
struct Rank(f64);

impl Eq for Rank {}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}
