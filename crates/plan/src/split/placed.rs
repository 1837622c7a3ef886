//! Candidates of groups that are already split: the best placement of them.

use super::bound::bound_by;
use crate::{
    candidate::Candidate,
    judge::{
        no_plan::NoPlan,
        solution::{Solution, evaluate},
    },
    problem::{DeviceId, GroupId, placement::Placement},
    request::{PlanRequest, choice::Choices, expand::Expanded},
    search::{options::Options, solve},
};

/// How groups are split, and where those are that are not.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assignment {
    pub choices: Choices,
    /// By group: its device if it is not split.
    pub whole: Vec<DeviceId>,
}

/// The candidate with groups split by `choices`, in the ratios of the request. Groups are on the devices that `known` gives, or on
/// better ones.
///
/// # Errors
/// If the choices are of another request, or some group runs nowhere.
pub(super) fn split_candidate(
    request: &PlanRequest<'_>,
    choices: Choices,
    known: impl FnOnce(&Expanded) -> Option<Vec<DeviceId>>,
    options: &Options,
) -> Result<Candidate, NoPlan> {
    let applied = request.applied(choices.clone());
    let expanded = request.expanded(&applied)?;
    let known = known(&expanded);
    let solution = placed(&expanded, options, known.as_deref())?;
    let splits = request.instance.splits(&expanded);
    let mut candidate = Candidate::split(solution, expanded, splits, choices, applied);
    bound_by(request, &mut candidate)?;
    Ok(candidate)
}

/// The device of every group of `expanded`: the only one that it can run on, or that of the group of the request that it stands
/// for, by `whole`. `None` if some group runs nowhere.
pub(super) fn devices(expanded: &Expanded, whole: &[DeviceId]) -> Option<Vec<DeviceId>> {
    let problem = &expanded.problem;
    let device = |id: GroupId| {
        let able: Vec<DeviceId> = problem.device_ids().filter(|d| problem.cost(id, *d).is_some()).collect();
        let home = expanded.of.get(id.0 as usize).copied().flatten().and_then(|g| whole.get(g)).copied();
        home.filter(|home| able.contains(home)).or(able.first().copied())
    };
    problem.group_ids().map(device).collect()
}

/// The best placement of the groups of `expanded` that is found, on the devices `known` or others. Its orders may be program
/// order with borders first, which the search would have to find group by group.
fn placed(expanded: &Expanded, options: &Options, known: Option<&[DeviceId]>) -> Result<Solution, NoPlan> {
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
