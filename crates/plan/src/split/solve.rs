//! The best placement with splits: the best one of whole groups first, then what splitting groups gains.

use edgecut_graph::Graph;
use edgecut_ops::passes::{
    shard::SplitError,
    shard_graph::{Sharding, shard_graph},
};

use super::{
    bound,
    choice::{Choice, Choices},
    expand::Expanded,
    ratios::Ratios,
    search,
};
use crate::{
    candidate::Candidate,
    evaluation::Score,
    file::Split,
    problem::{DeviceId, ProblemError},
    request::PlanRequest,
    search::Options,
    solve::{self, NoPlan, Solution, judge},
};

/// The part (one over it) of the evaluations that the search for splits may take, and the placing of the groups that
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
/// If the tables contradict each other, or no plan meets the targets; then with the reason.
pub fn solve(request: &PlanRequest<'_>, start: Option<&Choices>) -> Result<Candidate, NoPlan> {
    match &request.like {
        Some(splits) => like(request, splits),
        None => searched(request, start),
    }
}

fn searched(request: &PlanRequest<'_>, start: Option<&Choices>) -> Result<Candidate, NoPlan> {
    let unsplit = expand(request, &Choices::new())?;
    let first = solve::solve(&unsplit.problem, &request.search);
    let groups = request.split_options.groups.len();
    if request.network.devices.len() < 2 || !request.can_split() {
        return Ok(Candidate::whole(first?, unsplit));
    }
    let homes: Vec<DeviceId> = match &first {
        Ok(solution) => solution.evaluation.placement.devices.clone(),
        Err(_) => vec![request.network.source; groups],
    };
    let floor = first.as_ref().map(|solution| solution.evaluation.score);
    let floor = floor.unwrap_or(Score { violation: f64::INFINITY, ..Default::default() });
    let size = request.split_options.graph.operators().len() * request.network.devices.len();
    let evaluations = request.search.evaluations(groups);
    let usual = Options { budget: None, ..request.search }.evaluations(groups).max(1);
    let expansions = EXPANSION_BUDGET.saturating_mul(evaluations.max(usual)) / usual;
    let budget = (evaluations / SEARCH_PART).min(expansions / size.max(1) as u64).max(8);
    let bound = bound::bound(request, &unsplit.problem);
    let whole = first.as_ref().ok().map(|solution| solution.evaluation.score.value);
    let found = search::search(request, &homes, floor, budget, start);
    let split = found.and_then(|found| {
        let applied = request.applied(found.choices.clone());
        let expanded = request.expand(&applied).ok()?;
        let few = Options { budget: Some(budget.max(64)), ..request.search };
        let mut solution = solve::solve(&expanded.problem, &few).ok()?;
        let better = |first: &Solution| solution.evaluation.score.better(&first.evaluation.score);
        let better = request.ratios != Ratios::Tuned || first.as_ref().map_or(true, better);
        solution.evaluations += found.evaluations;
        better.then_some((solution, expanded, found.choices, applied))
    });
    let mut candidate = match split {
        Some((solution, expanded, choices, applied)) => {
            let splits = request.splits(&expanded);
            Candidate::split(solution, expanded, splits, choices, applied)
        }
        None => Candidate::whole(first?, unsplit),
    };
    candidate.solution.bound = bound;
    Ok(Candidate { whole, ..candidate })
}

/// Splits what `splits` split, along the same axes over the same devices, in the ratio of the request's rule; with
/// [`Ratios::Tuned`] in theirs.
fn like(request: &PlanRequest<'_>, splits: &[Split]) -> Result<Candidate, NoPlan> {
    let mut choices = Choices::new();
    for (group, operators) in request.split_options.groups.iter().enumerate() {
        // A group is cut along an axis of its last operator.
        let Some(split) = splits.iter().find(|split| operators.last() == Some(&split.operator)) else { continue };
        let option = request.split_options.group(group).iter().position(|option| option.axis == split.axis);
        let option =
            option.ok_or_else(|| ProblemError { what: format!("group {group} has no axis {}", split.axis) })?;
        let fractions = split.cuts.windows(2).map(|cut| cut[1].saturating_sub(cut[0]) as f64).collect();
        choices.insert(group, Choice { option, fractions, devices: split.devices.clone() });
    }
    let applied = request.applied(choices.clone());
    let (expanded, unsplit) = (expand(request, &applied)?, expand(request, &Choices::new())?);
    let mut solution = solve::solve(&expanded.problem, &request.search)?;
    solution.bound = bound::bound(request, &unsplit.problem);
    let splits = request.splits(&expanded);
    Ok(Candidate::split(solution, expanded, splits, choices, applied))
}

/// `candidate` at the costs that `request` has now: the same splits, devices and orders.
///
/// # Errors
/// If the candidate is of another request, or misses the targets now.
pub fn reevaluate(request: &PlanRequest<'_>, candidate: &Candidate) -> Result<Candidate, NoPlan> {
    let expanded = expand(request, &candidate.applied)?;
    let mut solution = judge(&expanded.problem, candidate.solution.evaluation.placement.clone())?;
    if request.can_split() {
        solution.bound = bound::bound(request, &expand(request, &Choices::new())?.problem);
    }
    solution.evaluations = candidate.solution.evaluations;
    Ok(Candidate { solution, expanded, ..candidate.clone() })
}

fn expand(request: &PlanRequest<'_>, choices: &Choices) -> Result<Expanded, ProblemError> {
    request.expand(choices).map_err(|e| ProblemError { what: e.to_string() })
}

/// The graph that a plan with `splits` is of, made from the model's.
///
/// # Errors
/// If the splits were made for another graph.
pub fn divided(graph: &Graph, splits: &[Split]) -> Result<Graph, SplitError> {
    let division = |split: &Split| (split.operator, Sharding { axis: split.axis, cuts: split.cuts.clone() });
    Ok(shard_graph(graph, &splits.iter().map(division).collect())?.graph)
}
