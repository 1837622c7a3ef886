//! Further candidates to run after the planner's first: simpler plans, which are predicted well, and other ratios.

use edgecut_plan::{
    Candidate, PlanRequest,
    problem::Objective,
    rule::{Rule, RuleKind},
    split::{self, front, ratios::Ratios, ratios::speeds},
};

use super::options::PilotOptions;

/// Adds to `candidates` the best ones without schedules, without splits, and on a single device, where none of them is so.
pub(super) fn add_alternatives(request: &PlanRequest<'_>, options: &PilotOptions, candidates: &mut Vec<Candidate>) {
    if candidates.iter().all(Candidate::is_scheduled) {
        let found = [split::solve(request, None), front::within(request)].into_iter().flatten();
        let value = |candidate: &Candidate| front::value(request.objective, candidate);
        candidates.extend(found.min_by(|a, b| value(a).total_cmp(&value(b))));
    }
    if !candidates.iter().any(|candidate| !candidate.is_scheduled() && candidate.splits.is_empty()) {
        candidates.extend(split::solve(&request.unsplit(), None).ok());
    }
    let is_single = |candidate: &Candidate| !candidate.is_scheduled() && candidate.uses_one_device();
    if request.objective != Objective::Memory && !candidates.iter().any(is_single) {
        candidates.extend(on_one_device(request, options));
    }
}

/// The best plan for one device, of the devices that are fastest alone.
fn on_one_device(request: &PlanRequest<'_>, options: &PilotOptions) -> Option<Candidate> {
    let speeds = speeds(&request.costs, request.network.devices.len());
    let computes_all = |device: &usize| request.costs.iter().all(|row| row.get(*device).is_some_and(Option::is_some));
    let mut devices: Vec<usize> = (0..speeds.len()).filter(computes_all).collect();
    devices.sort_by(|a, b| speeds[*b].total_cmp(&speeds[*a]));
    let plan = |device: &usize| {
        let mut pinned = request.unsplit().with_part(options.side_search_part);
        let device = request.network.devices[*device].full_name();
        pinned.restrict(&[Rule { kind: RuleKind::Pin, groups: "*".into(), device }]);
        split::solve(&pinned, None).ok()
    };
    let found = devices.iter().take(options.single_devices).filter_map(plan);
    found.min_by(|a, b| a.solution.value().total_cmp(&b.solution.value()))
}

/// What `fastest` splits, in equal and in proportional ratios. Times measured while something disturbed a device tune
/// ratios to a disturbance that does not come again; these ratios do not depend on single measurements.
pub(super) fn by_ratio_rules(request: &PlanRequest<'_>, options: &PilotOptions, fastest: &Candidate) -> Vec<Candidate> {
    if fastest.splits.is_empty() || !request.is_free() {
        return Vec::new();
    }
    let like = PlanRequest { like: Some(fastest.splits.clone()), ..request.with_part(options.side_search_part) };
    let rules = [Ratios::Equal, Ratios::Proportional].into_iter();
    rules.filter_map(|ratios| split::solve(&PlanRequest { ratios, ..like.clone() }, None).ok()).collect()
}
