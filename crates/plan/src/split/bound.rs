//! What no plan can go below, however it splits.
//!
//! A device gets no more of a group done in a microsecond than in the best of the shares that its costs are made of; a
//! group that all devices work on together takes at least 1 / Σ rate. A chain of groups takes the sum of that, with
//! transfers and joins for nothing. And all work must be done by somebody, which is a bound on fractions anyway
//! ([`area`]).

use crate::{
    bound::{Bounds, LowerBound, area, footprint},
    problem::{Cost, DeviceId, Objective, Problem},
    request::PlanRequest,
};
use edgecut_graph::units::Micros;

/// The bound on the objective of `request`; `unsplit` is its problem with every group whole.
pub fn bound(request: &PlanRequest<'_>, unsplit: &Problem) -> LowerBound<f64> {
    let splits = |group: usize| !request.split_options.group(group).is_empty();
    if unsplit.objective == Objective::Memory {
        return match (0..request.split_options.groups.len()).any(splits) {
            true => LowerBound {
                value: footprint::parameters(unsplit).0 as f64 / unsplit.devices.len() as f64,
                by: "all parameters spread evenly",
            },
            false => Bounds::of(unsplit).on(Objective::Memory),
        };
    }
    // Every group that can be split as fast as any share of it is.
    let mut best = unsplit.clone();
    for (index, group) in best.groups.iter_mut().enumerate().filter(|(index, _)| splits(*index)) {
        for (device, cost) in (0u32..).map(DeviceId).zip(&mut group.costs) {
            *cost = cost.map(|whole| Cost { time: Micros(1.0 / request.shards.rate(index, device, whole)), ..whole });
        }
    }
    let least: Vec<f64> = best
        .groups
        .iter()
        .enumerate()
        .map(|(index, group)| {
            let times = group.costs.iter().flatten().map(|cost| cost.time.0);
            match splits(index) {
                true => 1.0 / times.map(|time| 1.0 / time.max(f64::MIN_POSITIVE)).sum::<f64>(),
                false => times.fold(f64::INFINITY, f64::min),
            }
        })
        .collect();
    // The largest load of all work spread at will, and the largest group that cannot be.
    let indivisible = (0..least.len()).filter(|group| !splits(*group)).map(|group| least[group]);
    let even = LowerBound { value: indivisible.fold(area::spread(&best), f64::max), by: "all work spread evenly" };
    let chain = longest(unsplit, &least);
    match unsplit.objective == Objective::Latency && chain >= even.value {
        true => LowerBound { value: chain, by: "longest chain of groups, each on all devices at once" },
        false => even,
    }
}

/// The longest chain of groups that take `least` each.
fn longest(unsplit: &Problem, least: &[f64]) -> f64 {
    let mut finish = vec![0.0f64; unsplit.groups.len()];
    for (index, group) in unsplit.groups.iter().enumerate() {
        let made = group.inputs.iter().filter_map(|t| unsplit.tensor(*t).producer).map(|p| finish[p.0 as usize]);
        finish[index] = made.fold(0.0, f64::max) + least[index];
    }
    // Sums of reciprocals are rounded; a bound must not be above what can be reached.
    finish.into_iter().fold(0.0, f64::max) * (1.0 - 1e-9)
}
