//! Further candidates to run after the planner's first: simpler plans, which are predicted well, and other ratios.

use edgecut_plan::{
    Candidate, Goal, PlanRequest,
    no_plan::Shortage,
    planner,
    problem::Objective,
    rule::{Rule, RuleKind},
    split::{self, front, ratios::Ratios, ratios::speeds},
};

use super::options::PilotOptions;

/// Whether agents would run it: they enforce limits on memory, and targets on times are judged by what runs take.
pub(super) fn keeps_memory(candidate: &Candidate) -> bool {
    !candidate.solution.missed.iter().any(Shortage::is_of_memory)
}

/// Adds to `candidates` the best ones without schedules, without splits, and on a single device, where none of them is
/// so; without splits one with schedules, where no other keeps the limits on memory.
pub(super) fn add_alternatives(request: &PlanRequest<'_>, options: &PilotOptions, candidates: &mut Vec<Candidate>) {
    if candidates.iter().all(Candidate::is_scheduled) {
        let found = [split::nearest(request, None), front::within(request)].into_iter().flatten();
        let better = |a, b| if front::is_better(request.goal.objective, &b, &a) { b } else { a };
        candidates.extend(found.filter(keeps_memory).reduce(better));
    }
    if !candidates.iter().any(|candidate| !candidate.is_scheduled() && candidate.splits.is_empty()) {
        let whole = request.unsplit();
        let unscheduled = split::nearest(&whole, None).ok().filter(keeps_memory);
        // What tiles of shards need of memory is an estimate, and agents may refuse them.
        let is_split = candidates.iter().all(|candidate| !candidate.splits.is_empty());
        let scheduled = || planner::nearest(&whole).ok().filter(|found| is_split && keeps_memory(found));
        candidates.extend(unscheduled.or_else(scheduled));
    }
    let is_single = |candidate: &Candidate| !candidate.is_scheduled() && candidate.uses_one_device();
    if request.goal.objective != Objective::Memory && !candidates.iter().any(is_single) {
        candidates.extend(on_one_device(request, options));
    }
}

/// The best plan for one device, of the devices that are fastest alone.
fn on_one_device(request: &PlanRequest<'_>, options: &PilotOptions) -> Option<Candidate> {
    let instance = &request.instance;
    let speeds = speeds(&instance.costs, instance.network.devices.len());
    let computes_all = |device: &usize| instance.costs.iter().all(|row| row.get(*device).is_some_and(Option::is_some));
    let mut devices: Vec<usize> = (0..speeds.len()).filter(computes_all).collect();
    devices.sort_by(|a, b| speeds[*b].total_cmp(&speeds[*a]));
    let plan = |device: &usize| {
        let mut pinned = request.unsplit().with_part(options.side_search_part);
        let device = instance.network.devices[*device].device_name().to_string();
        pinned.instance_mut().restrict(&[Rule { kind: RuleKind::Pin, groups: "*".into(), device }]);
        split::nearest(&pinned, None).ok().filter(keeps_memory)
    };
    let found = devices.iter().take(options.single_devices).filter_map(plan);
    found.reduce(|a, b| if b.solution.is_better(&a.solution) { b } else { a })
}

/// What `candidate` splits, in equal and in proportional ratios. Times measured while something disturbed a device tune
/// ratios to a disturbance that does not come again; these ratios do not depend on single measurements.
pub(super) fn by_ratio_rules(
    request: &PlanRequest<'_>,
    options: &PilotOptions,
    candidate: &Candidate,
) -> Vec<Candidate> {
    if candidate.splits.is_empty() || !request.goal.is_free() {
        return Vec::new();
    }
    let mut like = request.with_part(options.side_search_part);
    like.goal.like = Some(candidate.splits.clone());
    let rules = [Ratios::Equal, Ratios::Proportional].into_iter();
    let with_ratios = |ratios| like.with_goal(Goal { ratios, ..like.goal.clone() });
    let found = rules.filter_map(|ratios| split::nearest(&with_ratios(ratios), None).ok());
    found.filter(keeps_memory).collect()
}
