//! The best placement of groups that are already split.

use crate::{
    judge::{
        no_plan::NoPlan,
        solution::{Solution, evaluate},
    },
    problem::{DeviceId, placement::Placement},
    request::expand::Expanded,
    search::{options::Options, solve},
};

/// The best placement of the groups of `expanded` that is found, on the devices `known` or others. Its orders may be program
/// order with borders first, which the search would have to find group by group.
pub(super) fn placed(expanded: &Expanded, options: &Options, known: Option<&[DeviceId]>) -> Result<Solution, NoPlan> {
    let mut best = solve::nearest(&expanded.problem, options)?;
    let found = best.evaluation.placement.devices.clone();
    for devices in known.into_iter().chain([&found[..]]) {
        let other = evaluate(&expanded.problem, Placement::new(devices, &expanded.order()))?;
        if other.rank() < best.rank() {
            best = Solution { evaluations: best.evaluations, ..other };
        }
    }
    Ok(best)
}
