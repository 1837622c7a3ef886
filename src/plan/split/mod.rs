//! Planning with splits: groups whose shards run on several devices at once.
//!
//! | module | what it does |
//! |---|---|
//! | [`ways`] | along which axes a group can be split, all its operators alike |
//! | [`costs`] | what a shard costs, given what the whole costs |
//! | [`alone`] | shards cut out, to be measured |
//! | [`expand`] | a problem in which the shards are groups, with what they exchange |
//! | [`search`] | which groups to split, over which devices, in which ratio |
//! | [`moves`] | how the search changes a plan |
//! | [`ratios`] | ratios by rules that are common elsewhere, to compare with |
//! | [`front`] | several plans: the front, and what each server is worth |
//! | [`bound`] | what no plan can go below, however it splits |
//!
//! A split is a change of the graph ([`crate::ops::sharded`]); the problem that comes out is an ordinary one, so the
//! simulator, the memory account and the checker judge it as they judge any other.

pub mod alone;
pub mod bound;
pub mod costs;
pub mod expand;
pub mod front;
pub mod moves;
pub mod ratios;
pub mod search;
pub mod ways;

use std::collections::BTreeMap;

use super::{
    DeviceId, Strategy,
    evaluate::Score,
    file::Split,
    problem::ProblemError,
    search::Options,
    solve::{NoPlan, Solution, judge, solve},
};
use crate::{
    graph::Graph,
    ops::{
        shard::SplitError,
        sharded::{Division, sharded},
    },
};

pub use costs::{Proportional, Sampled, Shard, ShardCosts};
pub use expand::{Choice, Expanded, Task};
pub use ratios::{Ratios, speeds};
pub use ways::Ways;

/// The best plan found, and the graph that it is of.
#[derive(Debug, Clone)]
pub struct Answer {
    pub solution: Solution,
    /// The graph and the problem of the solution: with shards, if anything is split.
    pub expanded: Expanded,
    /// What is split, as the plan file has it.
    pub splits: Vec<Split>,
    /// What is split, by group: where a search with better knowledge of the shards goes on from.
    pub choices: BTreeMap<usize, Choice>,
    /// These in the ratios of the rule that the plan follows: what [`Answer::expanded`] was made by.
    pub applied: BTreeMap<usize, Choice>,
    /// What the best plan without splits is worth, if there is one.
    pub whole: Option<f64>,
}

/// Share of the evaluations that the search for splits may take, and the placing of the groups that stay whole.
const FOR_SPLITS: u64 = 8;

/// Operators times devices that the search for splits may write out in all, with as many evaluations as suit the model:
/// large ones get fewer.
const WRITTEN_OUT: u64 = 1_000_000;

/// Finds a plan for `task`, whole groups and split ones.
///
/// # Errors
/// If the tables contradict each other, or no plan meets the targets; then with the reason.
pub fn plan(task: &Task<'_>, options: &Options) -> Result<Answer, NoPlan> {
    plan_from(task, options, Ratios::Tuned, None)
}

/// As [`plan`], going on from the splits of an answer to the same task with other costs of shards, if there is one.
///
/// By any rule but [`Ratios::Tuned`] what is best to split is split in that rule's ratios, although leaving it whole may
/// then be better.
///
/// # Errors
/// As [`plan`].
pub fn plan_from(
    task: &Task<'_>,
    options: &Options,
    ratios: Ratios,
    before: Option<&BTreeMap<usize, Choice>>,
) -> Result<Answer, NoPlan> {
    let unsplit = task.expand(&Default::default()).map_err(|e| ProblemError { what: e.to_string() })?;
    let first = solve(&unsplit.problem, options);
    let groups = task.ways.groups.len();
    if task.network.devices.len() < 2 || (0..groups).all(|group| task.ways.group(group).is_empty()) {
        let solution = first?;
        let whole = Some(solution.value());
        return Ok(Answer {
            solution,
            expanded: unsplit,
            splits: Vec::new(),
            choices: BTreeMap::new(),
            applied: BTreeMap::new(),
            whole,
        });
    }
    let homes: Vec<DeviceId> = match &first {
        Ok(solution) => {
            let home = |strategy: &Strategy| strategy.devices().next().unwrap_or(task.network.source);
            solution.evaluation.placement.strategies.iter().map(home).collect()
        }
        Err(_) => vec![task.network.source; groups],
    };
    let floor = first.as_ref().map(|solution| solution.evaluation.score);
    let floor = floor.unwrap_or(Score { violation: f64::INFINITY, ..Default::default() });
    let size = task.ways.graph.operators().len() * task.network.devices.len();
    let evaluations = options.evaluations(groups);
    let usual = Options { budget: None, ..*options }.evaluations(groups).max(1);
    let written_out = WRITTEN_OUT.saturating_mul(evaluations.max(usual)) / usual;
    let budget = (evaluations / FOR_SPLITS).min(written_out / size.max(1) as u64).max(8);
    let bound = bound::bound(task, &unsplit.problem);
    let whole = first.as_ref().ok().map(|solution| solution.evaluation.score.value);
    let found = search::search(task, &homes, floor, budget, before);
    let split = found.and_then(|found| {
        let applied = ratios.applied(task, found.choices.clone());
        let expanded = task.expand(&applied).ok()?;
        let few = Options { budget: Some(budget.max(64)), ..*options };
        let mut solution = solve(&expanded.problem, &few).ok()?;
        let better = |first: &Solution| solution.evaluation.score.better(&first.evaluation.score);
        let better = ratios != Ratios::Tuned || first.as_ref().map_or(true, better);
        solution.evaluations += found.evaluations;
        better.then_some((solution, expanded, found.choices, applied))
    });
    let (mut solution, expanded, splits, choices, applied) = match split {
        Some((solution, expanded, choices, applied)) => {
            let splits = task.written(&expanded);
            (solution, expanded, splits, choices, applied)
        }
        None => (first?, unsplit, Vec::new(), BTreeMap::new(), BTreeMap::new()),
    };
    solution.bound = bound;
    Ok(Answer { solution, expanded, splits, choices, applied, whole })
}

/// Splits what `splits` split, along the same axes over the same devices, in the ratio of a rule; with
/// [`Ratios::Tuned`] in theirs.
///
/// # Errors
/// If the splits are of another model, or no plan meets the targets.
pub fn plan_like(task: &Task<'_>, options: &Options, ratios: Ratios, splits: &[Split]) -> Result<Answer, NoPlan> {
    let mut choices = BTreeMap::new();
    for (group, operators) in task.ways.groups.iter().enumerate() {
        // A group is cut along an axis of its last operator.
        let Some(split) = splits.iter().find(|split| operators.last() == Some(&split.operator)) else { continue };
        let way = task.ways.group(group).iter().position(|way| way.axis == split.axis);
        let way = way.ok_or_else(|| ProblemError { what: format!("group {group} has no axis {}", split.axis) })?;
        let fractions = split.cuts.windows(2).map(|cut| cut[1].saturating_sub(cut[0]) as f64).collect();
        choices.insert(group, Choice { way, fractions, devices: split.devices.clone() });
    }
    let applied = ratios.applied(task, choices.clone());
    let expand = |choices| task.expand(choices).map_err(|e| ProblemError { what: e.to_string() });
    let (expanded, unsplit) = (expand(&applied)?, expand(&BTreeMap::new())?);
    let mut solution = solve(&expanded.problem, options)?;
    solution.bound = bound::bound(task, &unsplit.problem);
    let splits = task.written(&expanded);
    Ok(Answer { solution, expanded, splits, choices, applied, whole: None })
}

/// `answer` at the costs that `task` has now: the same splits, devices and orders.
///
/// # Errors
/// If the answer is to another task.
pub fn judged_anew(task: &Task<'_>, answer: &Answer) -> Result<Answer, NoPlan> {
    let expand = |choices| task.expand(choices).map_err(|e| ProblemError { what: e.to_string() });
    let expanded = expand(&answer.applied)?;
    let mut solution = judge(&expanded.problem, answer.solution.evaluation.placement.clone())?;
    if !(0..task.ways.groups.len()).all(|group| task.ways.group(group).is_empty()) {
        solution.bound = bound::bound(task, &expand(&BTreeMap::new())?.problem);
    }
    solution.evaluations = answer.solution.evaluations;
    Ok(Answer { solution, expanded, ..answer.clone() })
}

/// The graph that a plan with `splits` is of, made from the model's.
///
/// # Errors
/// If the splits were made for another graph.
pub fn divided(graph: &Graph, splits: &[Split]) -> Result<Graph, SplitError> {
    let division = |split: &Split| (split.operator, Division { axis: split.axis, cuts: split.cuts.clone() });
    Ok(sharded(graph, &splits.iter().map(division).collect())?.graph)
}
