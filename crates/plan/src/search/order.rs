//! Topological orders of the groups, by priority: upward rank, or minimum memory.

use std::cmp;

use crate::{
    judge::bound::critical_path::Tails,
    problem::{GroupId, Problem},
};
use edgecut_graph::Alias;
use edgecut_memory::{
    order::min_peak_order_until,
    program::{Operator, Program, Value},
};

/// Limit on the groups of a problem for which a minimum-memory order is searched.
const MAX_GROUPS: usize = 3_000;
/// Limit on the width of that search in sets of groups, and the number of evaluations that a set costs.
pub(super) const MAX_WIDTH: u64 = 60;
pub(super) const EVALUATIONS_PER_SET: u64 = 4;

/// An order with a low memory peak on a single device, by a beam search of `width` sets of groups; `None` if the search
/// takes too long.
pub(super) fn min_memory_order(problem: &Problem, width: usize, late: &dyn Fn() -> bool) -> Option<Vec<GroupId>> {
    if problem.groups.len() > MAX_GROUPS {
        return None;
    }
    let mut program = Program::default();
    for (index, tensor) in (0u32..).zip(&problem.tensors) {
        let (bytes, result) = (tensor.bytes, tensor.is_output);
        let producer = tensor.producer.map(|group| group.0);
        program.values.push(Value { bytes, producer, result, replaces: None, storage: index });
    }
    let mut alias = Vec::with_capacity(problem.groups.len());
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
            time: cost.time,
            workspace: cost.workspace,
            reads: reads.into_iter().collect(),
            writes: group.outputs.iter().map(|tensor| tensor.0).collect(),
            ..Operator::default()
        });
        alias.push(if view.is_some() { Alias::View } else { Alias::Never });
    }
    let ordered = min_peak_order_until(&program, &alias, width, late);
    let order: Vec<GroupId> = ordered.order.into_iter().map(GroupId).collect();
    (order.len() == problem.groups.len()).then_some(order)
}

/// The order by upward rank as in HEFT (Topcuoglu, Hariri & Wu 2002), averaged over the devices, highest first.
pub(super) fn upward_rank_order(problem: &Problem, tails: &Tails) -> Vec<GroupId> {
    let rank = |g: GroupId| {
        let (mut sum, mut count) = (0.0, 0.0);
        for device in problem.device_ids() {
            if let Some(cost) = problem.cost(g, device) {
                sum += cost.time.0 + tails.group(g, device);
                count += 1.0;
            }
        }
        if count > 0.0 { sum / count } else { 0.0 }
    };
    topological_order(problem, rank)
}

/// The topological order that always takes the ready group of the highest priority, and of equal ones the first.
pub(crate) fn topological_order(problem: &Problem, priority: impl Fn(GroupId) -> f64) -> Vec<GroupId> {
    problem.topological_order(|group| cmp::Reverse(Priority(priority(group))))
}

#[derive(Clone, Copy, PartialEq)]
struct Priority(f64);

impl Eq for Priority {}

impl Ord for Priority {
    fn cmp(&self, other: &Priority) -> cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Priority) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_problems::{hand_made, random};

    #[test]
    fn the_ready_group_of_the_highest_priority_comes_first() {
        // 0 and 1 are independent, 2 reads 0, 3 reads 1.
        let problem = hand_made(&[(&[0], 1.0), (&[0], 1.0), (&[1], 1.0), (&[2], 1.0)]);
        for (priorities, want) in [
            ([0.0, 0.0, 0.0, 0.0], [0, 1, 2, 3]),
            ([0.0, 1.0, 0.0, 2.0], [1, 3, 0, 2]),
            ([2.0, 1.0, 3.0, 4.0], [0, 2, 1, 3]),
        ] {
            let order = topological_order(&problem, |group| priorities[group.0 as usize]);
            assert_eq!(order.iter().map(|group| group.0).collect::<Vec<_>>(), want, "{priorities:?}");
        }
    }

    #[test]
    fn all_orders_are_topological() {
        for seed in 0..60 {
            let problem = random(seed, 1 + seed as u32 % 20, 2);
            let orders =
                [upward_rank_order(&problem, &Tails::of(&problem)), min_memory_order(&problem, 4, &|| false).unwrap()];
            for order in orders {
                let position = |group: GroupId| order.iter().position(|other| *other == group).unwrap();
                assert_eq!(order.len(), problem.groups.len());
                for group in problem.group_ids() {
                    let mut producers = problem.group(group).inputs.iter().filter_map(|t| problem.tensor(*t).producer);
                    assert!(producers.all(|producer| position(producer) < position(group)), "seed {seed}");
                }
            }
        }
    }
}
