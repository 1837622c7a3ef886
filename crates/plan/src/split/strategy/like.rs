//! What another plan splits, split again.

use crate::{
    candidate::{
        Candidate,
        strategy::{Progress, Strategy, StrategyResult},
    },
    judge::no_plan::NoPlan,
    plan_file::file::Split,
    problem::ProblemError,
    request::{
        PlanRequest,
        choice::{Choice, Choices, Halo},
        instance::Instance,
    },
    split::placed::split_candidate,
};

/// See the module's head.
pub(crate) struct Like;

impl Strategy for Like {
    fn name(&self) -> &'static str {
        "like another plan"
    }

    fn skip_reason(&self, progress: &Progress<'_, '_>) -> Option<&'static str> {
        progress.request.goal.like.is_none().then_some("no splits are given")
    }

    fn run(&self, progress: &mut Progress<'_, '_>) -> Result<StrategyResult, NoPlan> {
        let splits = progress.request.goal.like.as_deref().unwrap_or_default();
        let candidate = like(progress.request, splits)?;
        Ok(StrategyResult { evaluations: candidate.solution.evaluations, found: Some(candidate) })
    }
}

/// Splits what `splits` split, along the same axes over the same devices, in the ratio of the request's rule; with
/// [`Ratios::Tuned`] in theirs.
fn like(request: &PlanRequest<'_>, splits: &[Split]) -> Result<Candidate, NoPlan> {
    let choices = choices_like(&request.instance, splits)?;
    split_candidate(request, choices, |_| None, &request.goal.search)
}

/// The choices that `splits` come from.
///
/// # Errors
/// If they are of other groups than those of `instance`.
pub(crate) fn choices_like(instance: &Instance<'_>, splits: &[Split]) -> Result<Choices, ProblemError> {
    let mut choices = Choices::new();
    for (group, operators) in instance.split_options.groups.iter().enumerate() {
        // A group is cut along an axis of its last operator.
        let Some(split) = splits.iter().find(|split| operators.last() == Some(&split.operator)) else { continue };
        let options = instance.split_options.group(group);
        let is_along = |number: &usize| {
            (options[*number].axis, options[*number].layout.packed()) == (split.axis, split.packed.as_ref())
        };
        let inner = split.cuts.get(1..split.cuts.len().saturating_sub(1)).unwrap_or_default();
        let has_cuts = |number: &usize| inner.iter().all(|cut| cut.is_multiple_of(options[*number].grain.max(1)));
        let along = || (0..options.len()).filter(is_along);
        // Options that differ in their grains: with the coarsest one, other ratios are aligned too.
        let coarsest = along().filter(has_cuts).max_by_key(|number| options[*number].grain);
        let option = coarsest.or_else(|| along().next());
        let packed = split.packed.as_ref().map_or(String::new(), |packed| format!(" that packs {packed}"));
        let what = format!("group {group} has no axis {}{packed}", split.axis);
        let option = option.ok_or(ProblemError { what })?;
        let fractions = split.cuts.windows(2).map(|cut| cut[1].saturating_sub(cut[0]) as f64).collect();
        let halo = if split.tiles.is_empty() { Halo::Exchanged } else { Halo::Recomputed };
        choices.insert(group, Choice { option, fractions, devices: split.devices.clone(), halo });
    }
    Ok(choices)
}
