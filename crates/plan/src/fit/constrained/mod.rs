//! Memory-constrained plans: devices that would exceed their limits follow schedules that need less memory.
//!
//! Devices compute runs of groups in schedules that need less memory: reordered, tiled, or with rematerialisation
//! ([`edgecut_memory::model`]). The result is simulated, accounted for and packed as any other plan. Schedules are
//! built for placements that are best without limits, or under others; costs of tiles are estimates.
//!
//! | module | what it does |
//! |---|---|
//! | `run` | a run of groups, and the schedules found for it |
//! | `rewrite` | the plan with schedules expanded |

mod rewrite;
mod run;

use std::cell::Cell;

use edgecut_graph::units::Bytes;
use edgecut_memory::remat::RematOptions;

use self::{
    rewrite::rewritten,
    run::{Run, StepCost},
};
use crate::{
    candidate::{Candidate, strategy::StrategyResult},
    plan_file::{file::Split, schedule::Schedule},
    problem::{DeviceId, placement::Placement},
    request::{PlanRequest, instance::Instance},
    split::{bound::bound_by, front, solve::nearest},
};

/// Relaxed limits under which placements are searched, as multiples of the actual ones; the last is unlimited.
const LOOSER: [Option<f64>; 6] = [Some(1.1), Some(1.25), Some(1.5), Some(2.0), Some(4.0), None];
/// A placement that is slower than the best plan with schedules by more than this factor is not scheduled: tiles gain less.
const MOST_GAIN: f64 = 1.1;
/// Each of these searches gets 1 / `SEARCH_PART` of the evaluations and of the time.
const SEARCH_PART: u32 = 4;
/// Budget of the schedule search of one run of groups, in steps per evaluation of the placement search.
const STEPS: u64 = 200;
/// Maximum number of times that schedules are tightened because a device as a whole exceeds its limit.
const TIGHTENINGS: usize = 6;

/// The best plan in which devices that exceed their limits follow schedules that need less memory; if none meets limits
/// and targets, the nearest, and `None` if no schedule was found. Deterministic for a seed and budget, unless a search
/// is cut off by time.
pub fn with_schedules(request: &PlanRequest<'_>) -> Option<Candidate> {
    best_schedules(request, front::alternatives(request).unwrap_or_default().candidates).found
}

/// The same from `placements`, those that exceed the limits, and, where devices have limits of their own, from placements
/// under looser ones.
pub(super) fn best_schedules(request: &PlanRequest<'_>, placements: Vec<Candidate>) -> StrategyResult {
    let evaluations = Cell::new(0);
    let few = request.with_part(SEARCH_PART);
    let budget = request.goal.search.evaluations(request.instance.names.len()).saturating_mul(STEPS);
    let effort = RematOptions { seed: request.goal.search.seed, budget, cut_off: request.goal.search.stop.until() };
    // Placements for one limit of all devices are among the alternatives.
    let factors = if request.instance.has_equal_limits() { &[][..] } else { &LOOSER };
    let looser = factors.iter().filter_map(|factor| nearest(&looser(&few, *factor), None).ok());
    let looser = looser.inspect(|candidate| evaluations.set(evaluations.get() + candidate.evaluations()));
    let mut best: Option<Candidate> = None;
    let mut seen: Vec<(Vec<Split>, Placement)> = Vec::new();
    let (overloaded, placements): (Vec<Candidate>, Vec<Candidate>) =
        placements.into_iter().partition(|candidate| is_overloaded(&request.instance, candidate));
    let looser = looser.filter(|candidate| !is_overloaded(&request.instance, candidate));
    for candidate in placements.into_iter().chain(looser) {
        if request.goal.search.stop.is_requested() {
            break;
        }
        let place = (candidate.splits.clone(), candidate.solution.evaluation.placement.clone());
        let is_slow = |best: &Candidate| {
            best.solution.missed.is_empty() && candidate.solution.value() > MOST_GAIN * best.solution.value()
        };
        if seen.contains(&place) || best.as_ref().is_some_and(is_slow) {
            continue;
        }
        seen.push(place);
        if let Some(found) = scheduled(request, candidate, &effort, &evaluations) {
            best = best.filter(|best| !front::is_better(request.goal.objective, &found, best)).or(Some(found));
        }
    }
    // Where there is no plan, the nearest one is wanted.
    if best.as_ref().is_none_or(|best| !best.solution.missed.is_empty()) && !request.goal.search.stop.is_requested() {
        let closest = front::nearest_of(request.goal.objective, overloaded);
        let found = closest.and_then(|candidate| scheduled(request, candidate, &effort, &evaluations));
        best = front::nearest_of(request.goal.objective, best.into_iter().chain(found));
    }
    StrategyResult { found: best, evaluations: evaluations.get() }
}

/// Whether parameters, which no schedule makes smaller, take all that some device may have.
fn is_overloaded(instance: &Instance<'_>, candidate: &Candidate) -> bool {
    let accounts = candidate.solution.evaluation.memory.iter().zip(&instance.network.devices);
    accounts.into_iter().any(|(account, device)| device.memory.is_some_and(|limit| account.parameters >= limit))
}

/// `request` with `factor` times its memory limits, or none.
fn looser<'a>(request: &PlanRequest<'a>, factor: Option<f64>) -> PlanRequest<'a> {
    let mut loose = request.clone();
    for device in &mut loose.instance_mut().network.devices {
        device.memory = device.memory.zip(factor).map(|(limit, factor)| Bytes((limit.0 as f64 * factor) as u64));
    }
    loose
}

/// `candidate` with schedules for the runs that exceed the limits of `request`: if they still do, the nearest to them.
/// Adds to `evaluations` the plans that it has simulated.
fn scheduled(
    request: &PlanRequest<'_>,
    candidate: Candidate,
    effort: &RematOptions,
    evaluations: &Cell<u64>,
) -> Option<Candidate> {
    let limit = |device: usize| request.instance.network.devices[device].memory.unwrap_or(Bytes(u64::MAX));
    let reserved = candidate.solution.reserved().enumerate();
    let is_over: Vec<bool> = reserved.map(|(device, reserved)| reserved > limit(device)).collect();
    let problem = &candidate.expanded.problem;
    let over = (0u32..).zip(&is_over).filter(|(_, is_over)| **is_over).map(|(device, _)| DeviceId(device));
    let runs: Vec<Run<'_>> = over.flat_map(|device| Run::all(&request.instance, &candidate, device, effort)).collect();
    let mut slack = vec![0u64; problem.devices.len()];
    let mut best: Option<Candidate> = None;
    for _ in 0..if is_overloaded(&request.instance, &candidate) { 1 } else { TIGHTENINGS } {
        let mut chosen: Vec<(Schedule, Vec<StepCost>)> = Vec::new();
        for run in &runs {
            let device = run.device.0 as usize;
            let taken = run.others.0.saturating_add(slack[device]);
            chosen.extend(run.within(limit(device).0.saturating_sub(taken)));
        }
        let Some(mut made) = rewritten(request, &candidate, chosen) else { break };
        evaluations.set(evaluations.get() + 1);
        made.solution.stream(&made.expanded.problem).ok()?;
        bound_by(request, &mut made).ok()?;
        let reserved: Vec<Bytes> = made.solution.reserved().collect();
        let short = |device: usize| limit(device).shortfall(reserved[device]).0;
        let keeps_limits = (0..reserved.len()).all(|device| short(device) == 0);
        (0..reserved.len()).for_each(|device| slack[device] += short(device));
        best = best.filter(|best| !front::is_better(request.goal.objective, &made, best)).or(Some(made));
        if keeps_limits {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fit::strategy::MIN_GAIN,
        judge::no_plan::NoPlan,
        request::{goal::Goal, ratios::Ratios},
        solve::planner::plan,
        split::solve,
        testing::{CONVOLUTIONS, VIEWED_WEIGHTS, WIDE, with_request},
    };

    fn limit(request: &mut PlanRequest<'_>, bytes: u64) {
        request.instance_mut().network.devices.iter_mut().for_each(|device| device.memory = Some(Bytes(bytes)));
    }

    /// The plan passes the checker, and no device reserves more than its limit.
    fn keeps_limits(request: &PlanRequest<'_>, candidate: &Candidate) {
        let plan = candidate.to_plan(request).unwrap();
        for device in &plan.devices {
            let reserved = device.memory.parameter_bytes + device.memory.arena_bytes;
            assert!(device.memory_limit_bytes.is_none_or(|limit| reserved <= limit), "{reserved}: {:?}", device.memory);
        }
    }

    #[test]
    fn what_exceeds_a_limit_as_a_whole_keeps_it_in_parts() {
        for (model, speeds) in [
            (WIDE, &[1000.0][..]),
            (WIDE, &[1000.0, 1000.0]),
            (VIEWED_WEIGHTS, &[1000.0]),
            (VIEWED_WEIGHTS, &[1000.0, 1000.0]),
        ] {
            with_request(model, speeds, |request| {
                let mut request = request.unsplit();
                limit(&mut request, 3 << 20);
                assert!(request.instance.is_limited());
                assert!(matches!(solve(&request, None), Err(NoPlan::Targets { .. })), "as a whole it is too much");
                let found = plan(&request).unwrap();
                assert!(found.schedules.iter().any(|schedule| !schedule.segments.is_empty()), "{:?}", found.schedules);
                keeps_limits(&request, &found);
                let value = found.solution.value();
                assert_eq!(value, with_schedules(&request).unwrap().solution.value());
                limit(&mut request, 64 << 10);
                assert!(plan(&request).is_err(), "less than the weights and the workspace");
            });
        }
    }

    #[test]
    fn looser_limits_never_give_slower_plans() {
        with_request(WIDE, &[1000.0, 700.0], |mut request| {
            let mut before = f64::INFINITY;
            for mebibytes in [3, 4, 6, 9, 64] {
                limit(&mut request, mebibytes << 20);
                let found = plan(&request).unwrap();
                keeps_limits(&request, &found);
                let value = found.solution.value();
                // Plans with schedules must win by a margin.
                assert!(value * MIN_GAIN <= before, "{mebibytes} MiB: {value} after {before}");
                before = value;
            }
        });
    }

    #[test]
    fn without_a_shortage_or_a_choice_the_plan_stays() {
        with_request(CONVOLUTIONS, &[1000.0, 700.0], |mut request| {
            limit(&mut request, 1 << 40);
            assert!(!request.instance.is_limited());
            let value = |candidate: Result<Candidate, NoPlan>| candidate.map(|found| found.solution.value());
            assert_eq!(value(plan(&request)), value(solve(&request, None)));
            limit(&mut request, 200 << 10);
            assert!(request.instance.is_limited());
            for goal in [
                Goal { fits_memory: false, ..request.goal.clone() },
                Goal { ratios: Ratios::Equal, ..request.goal.clone() },
                Goal { like: Some(Vec::new()), ..request.goal.clone() },
            ] {
                let request = request.with_goal(goal);
                assert_eq!(value(plan(&request)), value(solve(&request, None)));
            }
        });
    }
}
