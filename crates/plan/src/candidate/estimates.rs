//! Which times of a plan are estimates, because no profile has a measurement of them.

use edgecut_graph::units::Micros;

use crate::{
    plan_file::file::{Plan, Source},
    problem::GroupId,
    request::{expand::Expanded, instance::Instance},
};

/// Marks the groups of `plan` whose times are estimates, and notes how many there are. `expanded` is the problem that
/// the plan solves, made from `instance`.
pub(crate) fn mark(plan: &mut Plan, expanded: &Expanded, instance: &Instance<'_>) {
    let (mut count, mut time) = (0, Micros::ZERO);
    for (id, group) in (0u32..).map(GroupId).zip(&mut plan.groups) {
        let of = expanded.of.get(id.0 as usize).copied().flatten();
        let is_measured = match (expanded.shards.get(&id), of) {
            (Some(shard), _) => instance.shards.is_measured(&expanded.graph, group.device, shard),
            (None, Some(of)) => !instance.estimated.contains(&(group.device, of)),
            // It slices an input or joins an output.
            (None, None) => false,
        };
        if !is_measured {
            group.source = Source::Estimated;
            (count, time) = (count + 1, time + group.time_us);
        }
    }
    if count > 0 {
        let all = plan.groups.len();
        plan.notes.push(format!("the times of {count} of {all} groups, {time} together, are estimates: ≈ marks them"));
    }
}
