//! Topological orders: which group comes first where the graph leaves a choice.

use std::{cmp, collections::BinaryHeap};

use crate::plan::{GroupId, Problem, TensorIndex, bound::critical::Tails};

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
