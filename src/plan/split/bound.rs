//! What no plan can go below, however it splits.
//!
//! If a shard takes at least its share of the whole group's time, a group that all devices work on together takes at
//! least 1 / Σ 1/t: their rates add up. A chain of groups takes the sum of that, transfers and joins for nothing.
//! And all work must be done by somebody ([`super::super::bound::area`], where fractions are allowed anyway).

use super::expand::Task;
use crate::plan::{
    Problem,
    bound::{Bounded, Bounds, area, holding},
    problem::Objective,
};

/// The bound on the objective of `task`; `unsplit` is its problem with every group whole.
pub fn bound(task: &Task<'_>, unsplit: &Problem) -> Bounded<f64> {
    match unsplit.objective {
        Objective::Latency => {
            let (chain, area) = (longest(task, unsplit), spread(task, unsplit));
            match chain >= area {
                true => Bounded { value: chain, by: "longest chain of groups, each on all devices at once" },
                false => Bounded { value: area, by: "all work spread evenly" },
            }
        }
        Objective::Throughput => Bounded { value: spread(task, unsplit), by: "all work spread evenly" },
        Objective::Memory => match task.ways.groups.iter().enumerate().any(|(g, _)| !task.ways.group(g).is_empty()) {
            true => Bounded {
                value: holding::parameters(unsplit).0 as f64 / unsplit.devices.len() as f64,
                by: "all parameters spread evenly",
            },
            false => Bounds::of(unsplit).on(Objective::Memory),
        },
    }
}

/// The least time of group number `group`.
fn least(task: &Task<'_>, group: usize) -> f64 {
    let times = task.costs[group].iter().flatten().map(|cost| cost.time.0);
    match task.ways.group(group).is_empty() {
        true => times.fold(f64::INFINITY, f64::min),
        false => {
            let rate: f64 = times.map(|time| 1.0 / time.max(f64::MIN_POSITIVE)).sum();
            1.0 / rate
        }
    }
}

fn longest(task: &Task<'_>, unsplit: &Problem) -> f64 {
    let mut finish = vec![0.0f64; unsplit.groups.len()];
    for (index, group) in unsplit.groups.iter().enumerate() {
        let made = group.inputs.iter().filter_map(|t| unsplit.tensor(*t).producer).map(|p| finish[p.0 as usize]);
        finish[index] = made.fold(0.0, f64::max) + least(task, index);
    }
    // Sums of reciprocals are rounded; a bound must not be above what can be reached.
    finish.into_iter().fold(0.0, f64::max) * (1.0 - 1e-9)
}

/// The largest load if fractions of groups are spread at will, but the largest group that cannot be split.
fn spread(task: &Task<'_>, unsplit: &Problem) -> f64 {
    let indivisible = (0..unsplit.groups.len()).filter(|g| task.ways.group(*g).is_empty());
    indivisible.map(|g| least(task, g)).fold(area::spread(unsplit), f64::max)
}
