//! Where the times of a plan come from: what of it nobody measured.

use std::collections::BTreeSet;

use crate::{
    plan::{
        DeviceId, GroupId, Plan, Strategy,
        file::Source,
        split::{Expanded, Sampled},
    },
    units::Micros,
};

/// Marks the groups of `plan` whose times are estimates, and says in its notes how many. `estimated` are the whole groups
/// of the task, by number, that nobody measured on a device; `sampled` knows of shards.
pub fn mark(plan: &mut Plan, expanded: &Expanded, sampled: &Sampled, estimated: &BTreeSet<(DeviceId, usize)>) {
    let (mut count, mut time) = (0, Micros::ZERO);
    for (id, group) in (0u32..).map(GroupId).zip(&mut plan.groups) {
        let Strategy::Whole { device } = group.strategy;
        let of = expanded.of.get(id.0 as usize).copied().flatten();
        let is_measured = match (expanded.shards.get(&id), of) {
            (Some(shard), _) => sampled.is_measured(&expanded.graph, device, shard),
            (None, Some(of)) => !estimated.contains(&(device, of)),
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
