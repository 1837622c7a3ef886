//! The best placement with splits: the best one of whole groups first, then what splitting groups gains.

use edgecut_graph::Graph;
use edgecut_ops::passes::{
    shard::SplitError,
    shard_graph::{Sharding, shard_graph},
};

use super::{
    bound::{bounds, is_relaxed, proof},
    search,
};
use crate::{
    candidate::Candidate,
    judge::{
        bound::LowerBound,
        evaluation::Score,
        no_plan::NoPlan,
        solution::{Solution, evaluate},
    },
    plan_file::file::Split,
    problem::{DeviceId, ProblemError, placement::Placement},
    request::{
        PlanRequest,
        choice::{Choice, Choices, Halo},
        expand::Expanded,
        ratios::Ratios,
    },
    search::{options::Options, solve},
};

/// The part (one over it) of the evaluations that each search for splits may take, and the placing of the groups that
/// stay whole.
const SEARCH_PART: u64 = 8;

/// Limit on the operators × devices that the search for splits expands in total, at the default number of evaluations:
/// large models get fewer.
const EXPANSION_BUDGET: u64 = 1_000_000;

/// The best plan found for `request`, whole groups and split ones, without schedules. A request like another plan splits
/// just what that splits; any other continues from the splits `start`, those of a plan for the same request at other
/// costs of shards, if there are any.
///
/// By any rule but [`Ratios::Tuned`] what is best to split is split in that rule's ratios, although leaving it whole may
/// then be better.
///
/// # Errors
/// If the tables contradict each other, or no plan meets limits and targets; then with the reason.
pub fn solve(request: &PlanRequest<'_>, start: Option<&Choices>) -> Result<Candidate, NoPlan> {
    met(request, nearest(request, start)?)
}

/// The same; where no plan that meets limits and targets is found, the nearest one, which says what it misses.
///
/// # Errors
/// If the tables contradict each other, or some group runs nowhere.
pub fn nearest(request: &PlanRequest<'_>, start: Option<&Choices>) -> Result<Candidate, NoPlan> {
    match &request.like {
        Some(splits) => like(request, splits),
        None => searched(request, start),
    }
}

fn searched(request: &PlanRequest<'_>, start: Option<&Choices>) -> Result<Candidate, NoPlan> {
    let unsplit = expand(request, &Choices::new())?;
    let first = solve::nearest(&unsplit.problem, &request.search)?;
    let groups = request.split_options.groups.len();
    if request.network.devices.len() < 2 || !request.can_split() {
        let mut candidate = Candidate::whole(first, unsplit);
        bound_by(request, &mut candidate)?;
        return Ok(candidate);
    }
    let size = request.split_options.graph.operators().len() * request.network.devices.len();
    let evaluations = request.search.evaluations(groups);
    let usual = Options { budget: None, ..request.search }.evaluations(groups).max(1);
    let expansions = EXPANSION_BUDGET.saturating_mul(evaluations.max(usual)) / usual;
    let budget = (evaluations / SEARCH_PART).min(expansions / size.max(1) as u64).max(8);
    // Groups stay where the plan without splits has them; if that is no plan, also where no limit was looked at.
    let mut homes = vec![first.evaluation.placement.devices.clone()];
    if !first.missed.is_empty() {
        homes.push(vec![request.network.source; groups]);
    }
    let whole = first.missed.is_empty().then(|| first.value());
    let first = Candidate::whole(first, unsplit);
    let is_forced = request.ratios != Ratios::Tuned;
    let mut best: Option<Candidate> = None;
    for homes in homes {
        let Some(found) = split_from(request, &homes, &first, budget, start) else { continue };
        if best.as_ref().is_none_or(|best| is_better(&found.solution, &best.solution)) {
            best = Some(found);
        }
    }
    let best = best.filter(|best| is_forced || is_better(&best.solution, &first.solution));
    let mut candidate = best.unwrap_or(first);
    bound_by(request, &mut candidate)?;
    Ok(Candidate { whole, ..candidate })
}

/// The best plan that the search for splits finds from groups on `homes`, if it finds one that may be better than `first`.
fn split_from(
    request: &PlanRequest<'_>,
    homes: &[DeviceId],
    first: &Candidate,
    budget: u64,
    start: Option<&Choices>,
) -> Option<Candidate> {
    let floor = match first.solution.missed.is_empty() {
        true => first.solution.evaluation.score,
        false => Score { violation: f64::INFINITY, ..Default::default() },
    };
    let found = search::search(request, homes, floor, budget, start)?;
    let applied = request.applied(found.choices.clone());
    let expanded = request.expand(&applied).ok()?;
    let few = Options { budget: Some(budget.max(64)), ..request.search };
    let known = (applied == found.choices).then_some(&found.devices[..]);
    let mut solution = placed(&expanded, &few, known).ok()?;
    solution.evaluations += found.evaluations;
    let splits = request.splits(&expanded);
    Some(Candidate::split(solution, expanded, splits, found.choices, applied))
}

/// The best placement of the groups of `expanded` that is found, on the devices `known` or others. Its orders may be program
/// order with borders first, which the search would have to find group by group.
fn placed(expanded: &Expanded, options: &Options, known: Option<&[DeviceId]>) -> Result<Solution, NoPlan> {
    let mut best = solve::nearest(&expanded.problem, options)?;
    let found = best.evaluation.placement.devices.clone();
    for devices in known.into_iter().chain([&found[..]]) {
        let other = evaluate(&expanded.problem, Placement::new(devices, &expanded.order()))?;
        if is_better(&other, &best) {
            best = Solution { evaluations: best.evaluations, ..other };
        }
    }
    Ok(best)
}

/// Whether a plan is better than `other`: by its score if both meet limits and targets, else by what they miss.
fn is_better(plan: &Solution, other: &Solution) -> bool {
    match plan.missed.is_empty() && other.missed.is_empty() {
        true => plan.evaluation.score.better(&other.evaluation.score),
        false => plan.is_better(other),
    }
}

/// Splits what `splits` split, along the same axes over the same devices, in the ratio of the request's rule; with
/// [`Ratios::Tuned`] in theirs.
fn like(request: &PlanRequest<'_>, splits: &[Split]) -> Result<Candidate, NoPlan> {
    let choices = choices_like(request, splits)?;
    let applied = request.applied(choices.clone());
    let expanded = expand(request, &applied)?;
    let solution = placed(&expanded, &request.search, None)?;
    let splits = request.splits(&expanded);
    let mut candidate = Candidate::split(solution, expanded, splits, choices, applied);
    bound_by(request, &mut candidate)?;
    Ok(candidate)
}

/// The choices that `splits` come from.
///
/// # Errors
/// If they are of other groups than those of `request`.
pub(crate) fn choices_like(request: &PlanRequest<'_>, splits: &[Split]) -> Result<Choices, ProblemError> {
    let mut choices = Choices::new();
    for (group, operators) in request.split_options.groups.iter().enumerate() {
        // A group is cut along an axis of its last operator.
        let Some(split) = splits.iter().find(|split| operators.last() == Some(&split.operator)) else { continue };
        let option = request.split_options.group(group).iter().position(|option| option.axis == split.axis);
        let option =
            option.ok_or_else(|| ProblemError { what: format!("group {group} has no axis {}", split.axis) })?;
        let fractions = split.cuts.windows(2).map(|cut| cut[1].saturating_sub(cut[0]) as f64).collect();
        let halo = if split.tiles.is_empty() { Halo::Exchanged } else { Halo::Recomputed };
        choices.insert(group, Choice { option, fractions, devices: split.devices.clone(), halo });
    }
    Ok(choices)
}

/// Sets the bounds of `candidate` to those on every plan of `request`, unless it is proved the best one by itself.
pub(crate) fn bound_by(request: &PlanRequest<'_>, candidate: &mut Candidate) -> Result<(), ProblemError> {
    let unsplit = expand(request, &Choices::new())?;
    let solution = &mut candidate.solution;
    solution.bounds = bounds(request, &unsplit.problem);
    if is_relaxed(request) {
        let bound = solution.bounds.on(request.objective);
        solution.bound = LowerBound { value: bound.value.min(solution.value()), ..bound };
    }
    Ok(())
}

/// `candidate`, if it meets limits and targets.
///
/// # Errors
/// If it does not: what every plan of `request` misses, if that is proved, else what this one misses.
pub fn met(request: &PlanRequest<'_>, candidate: Candidate) -> Result<Candidate, NoPlan> {
    if candidate.solution.missed.is_empty() {
        return Ok(candidate);
    }
    let unsplit = expand(request, &Choices::new())?;
    let proof = proof(request, &unsplit.problem);
    let nearest = candidate.solution.figures(bounds(request, &unsplit.problem));
    // A complete search of placements says nothing of splits and schedules.
    let is_searched = candidate.solution.is_infeasible && !is_relaxed(request);
    let proven = !proof.is_empty() || is_searched;
    let shortages = if proof.is_empty() { nearest.shortages.clone() } else { proof };
    Err(NoPlan::Targets { proven, shortages, nearest: Some(Box::new(nearest)) })
}

/// `candidate` at the costs that `request` has now: the same splits, devices and orders.
///
/// # Errors
/// If the candidate is of another request. What it misses now it says itself.
pub fn reevaluate(request: &PlanRequest<'_>, candidate: &Candidate) -> Result<Candidate, NoPlan> {
    let expanded = expand(request, &candidate.applied)?;
    let mut solution = evaluate(&expanded.problem, candidate.solution.evaluation.placement.clone())?;
    solution.evaluations = candidate.solution.evaluations;
    let mut candidate = Candidate { solution, expanded, ..candidate.clone() };
    bound_by(request, &mut candidate)?;
    Ok(candidate)
}

fn expand(request: &PlanRequest<'_>, choices: &Choices) -> Result<Expanded, ProblemError> {
    request.expand(choices).map_err(|e| ProblemError { what: e.to_string() })
}

/// The graph that a plan with `splits` is of, made from the model's.
///
/// # Errors
/// If the splits were made for another graph.
pub fn divided(graph: &Graph, splits: &[Split]) -> Result<Graph, SplitError> {
    let division = |split: &Split| {
        let Split { operator, axis, cuts, tiles, .. } = split.clone();
        (operator, Sharding { axis, cuts, tiles })
    };
    Ok(shard_graph(graph, &splits.iter().map(division).collect())?.graph)
}
