//! A plan of the same model at the costs of another request: the same splits, devices and orders.

use edgecut_graph::units::Micros;

use super::like::{LikeError, splits_of};
use crate::{
    candidate::Candidate,
    judge::{no_plan::NoPlan, solution::evaluate},
    plan_file::file::{Plan, Split},
    problem::{Device, DeviceId, Problem, ProblemError, placement::Placement},
    request::{PlanRequest, choice::Choices, expand::Expanded},
    split::{bound::bound_by, strategy::choices_like},
};

/// Why a plan cannot be adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error(
        "its groups are not those of this model in these sizes, as this version groups and splits it: make the plan again"
    )]
    Foreign,
    #[error(transparent)]
    Like(#[from] LikeError),
    #[error(transparent)]
    NoPlan(#[from] NoPlan),
}

impl From<ProblemError> for AdoptError {
    fn from(error: ProblemError) -> AdoptError {
        AdoptError::NoPlan(error.into())
    }
}

/// `other` at the costs of `request`. It may be a plan of the same model in other sizes that was
/// [resized](crate::resized) to those of `request`. What it misses of the limits and targets of `request` it says itself.
///
/// # Errors
/// If it is a plan of another model, has other groups or devices, or a group cannot be computed where it is placed.
pub fn adopted(request: &PlanRequest<'_>, other: &Plan) -> Result<Candidate, AdoptError> {
    let instance = &request.instance;
    let splits = splits_of(other, &instance.model.blake3, instance.granularity, &instance.device_names())?;
    let choices = choices_like(instance, &splits)?;
    let expanded = expand(request, &choices)?;
    check_groups(request, &expanded, other)?;
    let problem = &expanded.problem;
    let devices = other.groups.iter().map(|group| device_of(problem, other, group.device));
    let devices = devices.collect::<Result<Vec<_>, _>>()?;
    let positions = positions(other);
    let order = problem.topological_order(|id| rank(other.groups[id.0 as usize].start_us, positions[id.0 as usize]));
    let solution = evaluate(problem, Placement { devices, order })?;
    let splits = instance.splits(&expanded);
    let mut candidate = Candidate::split(solution, expanded, splits, choices.clone(), choices);
    bound_by(request, &mut candidate)?;
    Ok(candidate)
}

/// The problem of `request` with the splits of `choices`.
pub(super) fn expand(request: &PlanRequest<'_>, choices: &Choices) -> Result<Expanded, ProblemError> {
    request.expand(choices).map_err(|error| ProblemError { what: error.to_string() })
}

/// Checks that `expanded`, a problem of `request`, has the groups and splits of `other`.
pub(super) fn check_groups(request: &PlanRequest<'_>, expanded: &Expanded, other: &Plan) -> Result<(), AdoptError> {
    let groups = &expanded.problem.groups;
    let is_same = groups.len() == other.groups.len()
        && groups.iter().zip(&other.groups).all(|(here, there)| here.operators == there.operators);
    let divisions = |splits: &[Split]| -> Vec<_> {
        let mut all: Vec<_> = splits.iter().map(|split| (split.operator, split.sharding())).collect();
        all.sort_by_key(|division| division.0);
        all
    };
    match is_same && divisions(&request.instance.splits(expanded)) == divisions(&other.splits) {
        true => Ok(()),
        false => Err(AdoptError::Foreign),
    }
}

/// The device of `problem` that has the name of device `id` of `other`.
pub(super) fn device_of(problem: &Problem, other: &Plan, id: DeviceId) -> Result<DeviceId, LikeError> {
    let name = other.device_name(id);
    let found = problem.device_ids().find(|id| Some(problem.device(*id).device_name()) == name);
    found.ok_or_else(|| LikeError::device(name, problem.devices.iter().map(Device::device_name)))
}

/// By group of `other`: its position in the order of its device.
pub(super) fn positions(other: &Plan) -> Vec<usize> {
    let mut positions = vec![0; other.groups.len()];
    for device in &other.devices {
        device.order.iter().enumerate().for_each(|(position, group)| positions[group.0 as usize] = position);
    }
    positions
}

/// The rank of a group among those that are ready: by its start, then by its position on its device.
pub(super) fn rank(start: Micros, position: usize) -> (u64, usize) {
    // The bits of times that are not negative are in the order of the times.
    (start.0.max(0.0).to_bits(), position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        solve::planner::plan,
        testing::{CONVOLUTIONS, with_request},
    };

    #[test]
    fn a_plan_at_its_own_costs_is_itself_and_at_others_the_same_placement() {
        with_request(CONVOLUTIONS, &[1000.0, 500.0], |mut request| {
            let made = plan(&request).unwrap().to_plan(&request).unwrap();
            assert!(!made.splits.is_empty());
            let again = |request: &PlanRequest<'_>| {
                adopted(request, &made).map(|candidate| candidate.to_plan(request).unwrap()).map_err(|e| e.to_string())
            };
            let same = again(&request).unwrap();
            assert_eq!(same.groups, made.groups);
            assert!((same.predicted.latency_us.0 / made.predicted.latency_us.0 - 1.0).abs() < 1e-9);
            assert!((same.bound.value / made.bound.value - 1.0).abs() < 1e-9);
            for costs in &mut request.instance_mut().costs {
                costs.iter_mut().flatten().for_each(|cost| cost.time = Micros(3.0 * cost.time.0));
            }
            let slower = again(&request).unwrap();
            let placed = |plan: &Plan| plan.groups.iter().map(|group| group.device).collect::<Vec<_>>();
            assert_eq!((placed(&slower), &slower.splits), (placed(&made), &made.splits));
            let busy = |plan: &Plan| plan.devices.iter().map(|device| device.busy_us).sum::<Micros>();
            // Slices and joins are not groups of the model, whose costs are given.
            assert!((2.9..=3.0).contains(&(busy(&slower).0 / busy(&made).0)), "{} {}", busy(&slower), busy(&made));
            let mut foreign = made.clone();
            foreign.groups.pop();
            assert!(matches!(adopted(&request, &foreign), Err(AdoptError::Foreign)));
            foreign.model.blake3 = "other".into();
            assert!(matches!(adopted(&request, &foreign), Err(AdoptError::Like(LikeError::OtherModel(_)))));
        });
    }
}
