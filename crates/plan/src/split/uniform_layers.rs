//! Layers split alike.
//!
//! Models repeat layers, but the search moves segments of groups and may split layers differently, for gains below the
//! uncertainty of costs. Each layer of a plan is tried as the template of all layers, and the best plan is kept.

use std::ops::Range;

use super::{
    placed::{Assignment, devices, split_candidate},
    segments::Layers,
};
use crate::{
    candidate::Candidate,
    judge::evaluation::Score,
    problem::{DeviceId, Objective},
    request::{PlanRequest, choice::Choice, instance::Instance, split_option::SplitOption},
    search::{fast_evaluator::FastEvaluator, options::Options},
};

/// A plan with uniform layers may be slower by this ratio: pilot runs of one plan differ by more.
const TOLERANCE: f64 = 1.002;

/// Evaluations for placing groups that are not split.
const PLACEMENTS: u64 = 64;

/// `candidate` with all layers split like one of them, whichever is best. Layers are those of the first sequence of equal ones.
/// `None` if no layers repeat, they are split alike already, or the result is worse.
pub fn uniform_layers(request: &PlanRequest<'_>, candidate: &Candidate) -> Option<Candidate> {
    if candidate.is_scheduled() || candidate.choices.is_empty() {
        return None;
    }
    let instance = &request.instance;
    let layers = Layers::of(&instance.representatives)?;
    let before = Assignment { choices: candidate.choices.clone(), whole: whole_devices(instance, candidate) };
    let mut best: Option<(Assignment, Score)> = None;
    let mut tried = vec![before.clone()];
    for template in layers.each() {
        if request.goal.search.stop.is_requested() {
            break;
        }
        // A plan without splits is another candidate.
        let is_new = |next: &Assignment| !next.choices.is_empty() && !tried.contains(next);
        let Some(next) = layers.copied_from(&template, &before, instance).filter(is_new) else { continue };
        tried.push(next.clone());
        let Some(score) = score(request, &next) else { continue };
        if best.as_ref().is_none_or(|(_, best)| score.better(best)) {
            best = Some((next, score));
        }
    }
    let (Assignment { choices, whole }, _) = best?;
    let options = Options { budget: Some(PLACEMENTS), ..request.goal.search };
    let mut uniform = split_candidate(request, choices, |expanded| devices(expanded, &whole), &options).ok()?;
    (uniform.whole, uniform.attempts) = (candidate.whole, candidate.attempts.clone());
    let tolerance = match request.goal.objective {
        Objective::Latency | Objective::Throughput => TOLERANCE,
        Objective::Memory | Objective::Energy => 1.0,
    };
    let (new, old) = (&uniform.solution, &candidate.solution);
    let is_kept = match new.violation() == old.violation() {
        true => new.value() <= tolerance * old.value(),
        false => new.violation() < old.violation(),
    };
    is_kept.then_some(uniform)
}

/// What an assignment is worth; `None` if it cannot be computed.
fn score(request: &PlanRequest<'_>, assignment: &Assignment) -> Option<Score> {
    let expanded = request.expand(&request.applied(assignment.choices.clone())).ok()?;
    let devices = devices(&expanded, &assignment.whole)?;
    FastEvaluator::new(&expanded.problem).score(&devices, &expanded.order()).ok()
}

/// By group: where `candidate` computes it if it is whole; for split groups the source, which is not used.
fn whole_devices(instance: &Instance<'_>, candidate: &Candidate) -> Vec<DeviceId> {
    let mut whole = vec![instance.network.source; instance.split_options.groups.len()];
    let placed = &candidate.solution.evaluation.placement.devices;
    for (of, device) in candidate.expanded.of.iter().zip(placed) {
        // Choices that change nothing leave their groups whole.
        if let Some(group) = of.filter(|group| !candidate.expanded.homes.contains_key(group)) {
            whole[group] = *device;
        }
    }
    whole
}

impl Layers {
    /// `assignment` with the groups of all layers split and placed as those of layer `template`; `None` if some group cannot be.
    fn copied_from(
        &self,
        template: &Range<usize>,
        assignment: &Assignment,
        instance: &Instance<'_>,
    ) -> Option<Assignment> {
        let mut next = assignment.clone();
        for (group, model) in self.each().flat_map(|layer| layer.zip(template.clone())) {
            next.whole[group] = assignment.whole[model];
            match assignment.choices.get(&model) {
                Some(choice) => drop(next.choices.insert(group, same_choice(instance, choice, model, group)?)),
                None => drop(next.choices.remove(&group)),
            }
        }
        Some(next)
    }
}

/// The choice for `group` that splits it as `choice` splits `model`, with the same grain if there is such an option: which grains
/// there are depends on neighbours.
fn same_choice(instance: &Instance<'_>, choice: &Choice, model: usize, group: usize) -> Option<Choice> {
    let wanted = instance.split_option(model, choice.option)?;
    let options = instance.split_options.group(group);
    let is_same = |option: &SplitOption| (option.axis, &option.layout) == (wanted.axis, &wanted.layout);
    let exact = options.iter().position(|option| is_same(option) && option.grain == wanted.grain);
    let option = exact.or_else(|| options.iter().position(is_same))?;
    Some(Choice { option, ..choice.clone() })
}

#[cfg(test)]
mod tests {
    use edgecut_graph::units::Rate;

    use super::*;
    use crate::{
        request::{choice::Halo, goal::Goal},
        testing::with_request,
    };

    /// Four layers of a product and an activation.
    const LAYERS: &str = "
def @main(%x: Tensor[(64, 256), float32], %w: Tensor[(256, 256), float32]) {
  %0 = nn.dense(%x, %w, units=256);
  %1 = tanh(%0);
  %2 = nn.dense(%1, %w, units=256);
  %3 = tanh(%2);
  %4 = nn.dense(%3, %w, units=256);
  %5 = tanh(%4);
  %6 = nn.dense(%5, %w, units=256);
  tanh(%6)
}
";

    #[test]
    fn all_layers_are_split_like_the_best_one() {
        with_request(LAYERS, &[100.0, 100.0], |mut request| {
            request.instance_mut().representatives = vec![0, 1, 0, 1, 0, 1, 0, 1];
            // To split an activation alone, 32 KiB are sent there and back.
            request.instance_mut().network.links.iter_mut().for_each(|link| link.cost.rate = Rate(10.0));
            let request = request.with_goal(Goal { halo: Some(Halo::Exchanged), ..request.goal.clone() });
            let rows = crate::split::nearest(&request, None).unwrap().choices[&0].clone();
            let options = Options { budget: Some(PLACEMENTS), ..request.goal.search };
            let candidate = |is_split: fn(usize) -> bool| {
                let choices = (0..8).filter(|group| is_split(*group)).map(|group| (group, rows.clone())).collect();
                split_candidate(&request, choices, |_| None, &options).unwrap()
            };
            let all = candidate(|_| true);
            // A layer is whole; the activation of one is; only one activation is split.
            for (is_split, is_gained) in [
                ((|group| group / 2 != 2) as fn(usize) -> bool, true),
                (|group| group != 3, true),
                (|group| group == 7, false),
            ] {
                let mixed = candidate(is_split);
                let uniform = uniform_layers(&request, &mixed);
                assert_eq!(uniform.as_ref().map(|uniform| &uniform.choices), is_gained.then_some(&all.choices));
                assert!(uniform.is_none_or(|uniform| uniform.solution.value() < mixed.solution.value()));
            }
            assert!(uniform_layers(&request, &all).is_none(), "they are split alike");
        });
    }
}
