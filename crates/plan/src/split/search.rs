//! Finds splits: good plans for all groups at once first, then local improvements segment by segment.
//!
//! 1. For every number of devices, the fastest ones, in proportion to their speeds and equally, with halos exchanged and
//!    recomputed: what dynamic programming finds ([`super::layout_search`]), and every group split along the axis that asks for
//!    the fewest bytes from elsewhere, given how the groups before it are split. The best of these goes on first.
//! 2. It goes on by the moves of [`super::moves`] on [segments](super::segments), of all layers at once and of program order:
//!    fractions moved from device to device, another axis, halos recomputed instead of exchanged, shares in
//!    [pieces](super::pieces) that are sent earlier, or not split at all. Which kind of move comes first decides where it
//!    ends: two orders are tried.
//!
//! Everything is judged by simulating the problem that comes out. The same request gives the same candidate.

use std::{collections::BTreeMap, panic::resume_unwind, thread};

use super::{
    layout_search::layout_search,
    placed::{Assignment, devices},
    segments::{Layers, Segment},
};
use crate::{
    judge::evaluation::Score,
    problem::DeviceId,
    request::{
        PlanRequest,
        choice::{Choice, Choices, Halo},
        goal::Goal,
        ratios::speeds,
        split_option::{Need, ResultLayout, SplitOption},
    },
    search::fast_evaluator::FastEvaluator,
};
use edgecut_graph::TensorId;

/// Steps by which a device's fraction is changed, relative to itself.
pub(super) const STEPS: [f64; 5] = [0.4, 0.2, 0.1, 0.05, 0.025];
/// Those of a first pass.
pub(super) const COARSE: [f64; 2] = [0.4, 0.2];
/// Those of a last pass.
pub(super) const FINE: [f64; 3] = [0.1, 0.05, 0.025];

/// Plans that recompute halos must be better by this: their tiles are estimates at first, and what they compute twice is certain,
/// while what an exchange takes may be hidden behind computing.
pub(super) const HALO_GAIN: f64 = 0.97;

/// Most devices that one group is split over.
const MAX_DEVICES: usize = 8;

/// Maximum number of passes over all moves.
const TURNS: usize = 4;
/// Another pass is made if the last one lowered the value to less than this ratio.
const ENOUGH: f64 = 0.997;

/// Splits for some groups, and the devices of the others.
#[derive(Debug, Clone)]
pub struct Incumbent {
    pub choices: Choices,
    pub score: Score,
    /// The devices of the groups of the problem that comes out, in program order.
    pub devices: Vec<DeviceId>,
    pub evaluations: u64,
}

/// A plan that the search goes on from.
struct InitialPlan {
    at: Incumbent,
    /// By group: where it is if it is not split.
    whole: Vec<DeviceId>,
    /// The devices that it splits over, with their speeds.
    devices: Vec<(DeviceId, f64)>,
}

/// Looks for splits that are better than `score`, which is what leaving every group whole on its device in `whole` is
/// worth. `None` if there are none. Goes on from the splits `before`, if there are any that can be computed.
///
/// Halos are recomputed where that gains enough over the best plan that exchanges all of them: there are two searches at once, each
/// of at most `budget` evaluations.
pub fn search(
    request: &PlanRequest<'_>,
    whole: &[DeviceId],
    score: Score,
    budget: u64,
    before: Option<&Choices>,
) -> Option<Incumbent> {
    if request.goal.halo.is_some() || before.is_some() {
        return search_from(request, whole, score, budget, before);
    }
    let exchanging = request.with_goal(Goal { halo: Some(Halo::Exchanged), ..request.goal.clone() });
    let exchange = || search_from(&exchanging, whole, score, budget, None);
    let (exchanged, free) = thread::scope(|scope| {
        let other = thread::Builder::new().spawn_scoped(scope, exchange);
        let free = search_from(request, whole, score, budget, None);
        match other {
            Ok(other) => (other.join().unwrap_or_else(|panicked| resume_unwind(panicked)), free),
            // The system has no thread for it.
            Err(_) => (exchange(), free),
        }
    });
    let spent = [&exchanged, &free].into_iter().flatten().map(|found| found.evaluations).sum();
    let gains_enough = |found: &Incumbent| {
        let recomputes = found.choices.values().any(|choice| choice.halo == Halo::Recomputed);
        let ratio = if recomputes { HALO_GAIN } else { 1.0 };
        exchanged.as_ref().is_none_or(|than| gains(&found.score, &than.score, ratio))
    };
    let best = free.filter(gains_enough).or(exchanged);
    best.map(|best| Incumbent { evaluations: spent, ..best })
}

/// Whether a plan is worth more than `than` by this ratio, or violates less.
pub(super) fn gains(plan: &Score, than: &Score, ratio: f64) -> bool {
    match plan.violation == than.violation {
        true => plan.value < ratio * than.value,
        false => plan.violation < than.violation,
    }
}

fn search_from(
    request: &PlanRequest<'_>,
    whole: &[DeviceId],
    score: Score,
    budget: u64,
    before: Option<&Choices>,
) -> Option<Incumbent> {
    let layers = Layers::of(&request.instance.representatives);
    let of_layers = layers.iter().flat_map(Layers::segments).collect();
    let whole = whole.to_vec();
    let mut search = Search { request, of_layers, whole, spent: 0, budget, limit: budget, best: None, floor: score };
    let subsets = search.subsets();
    if let Some(mut at) = before.filter(|choices| !choices.is_empty()).and_then(|b| search.evaluate(b.clone()))
        && let Some(devices) = subsets.first()
    {
        search.settle(&mut at, devices);
        search.keep(at);
        return search.found();
    }
    for InitialPlan { at: start, whole, devices } in search.initial_plans(subsets) {
        // The first order may spend half of what is left.
        search.limit = search.spent + budget.saturating_sub(search.spent) / 2;
        search.whole = whole.clone();
        let mut at = start.clone();
        search.tune_ratios(&mut at, &COARSE);
        search.settle(&mut at, &devices);
        search.keep(at);
        search.limit = budget;
        search.whole = whole;
        let mut at = start;
        search.change_halos(&mut at);
        search.unsplit(&mut at, &devices);
        search.tune_ratios(&mut at, &STEPS);
        search.settle(&mut at, &devices);
        search.keep(at);
        if search.is_over() {
            break;
        }
    }
    search.found()
}

pub(super) struct Search<'a, 'b> {
    pub(super) request: &'a PlanRequest<'b>,
    /// Parts of a layer in all layers at once; none if no layers repeat.
    pub(super) of_layers: Vec<Segment>,
    /// By group: where it is if it is not split.
    pub(super) whole: Vec<DeviceId>,
    spent: u64,
    budget: u64,
    /// When to leave off for now.
    limit: u64,
    best: Option<Incumbent>,
    /// What is to be beaten.
    floor: Score,
}

impl Search<'_, '_> {
    /// The best of all that was found, with what was spent on all of it.
    fn found(self) -> Option<Incumbent> {
        let Search { best, spent, .. } = self;
        best.map(|found| Incumbent { evaluations: spent, ..found })
    }

    pub(super) fn is_over(&self) -> bool {
        self.spent >= self.limit.min(self.budget) || self.request.goal.search.stop.is_requested()
    }

    /// The plans to go on from, the best first: see the module's head.
    fn initial_plans(&mut self, subsets: Vec<Vec<(DeviceId, f64)>>) -> Vec<InitialPlan> {
        let whole = self.whole.clone();
        let mut starts: Vec<InitialPlan> = Vec::new();
        for devices in subsets {
            let equal: Vec<(DeviceId, f64)> = devices.iter().map(|(device, _)| (*device, 1.0)).collect();
            let is_equal = devices.windows(2).all(|pair| pair[0].1 == pair[1].1);
            for ratio in [Some(devices.clone()), Some(equal).filter(|_| !is_equal)].into_iter().flatten() {
                if !starts.is_empty() && self.is_over() {
                    break;
                }
                let alike = self.cheapest_axes(&ratio).map(|choices| Assignment { choices, whole: whole.clone() });
                for Assignment { choices, whole } in layout_search(self.request, &ratio).into_iter().chain(alike) {
                    self.whole = whole;
                    let mut recomputed = choices.clone();
                    recomputed.values_mut().for_each(|choice| choice.halo = Halo::Recomputed);
                    let instance = &self.request.instance;
                    let differ = instance.divided(&recomputed).0 != instance.divided(&choices).0;
                    let tried = match self.request.goal.halo {
                        None if differ => vec![choices, recomputed],
                        None | Some(Halo::Exchanged) => vec![choices],
                        Some(Halo::Recomputed) => vec![recomputed],
                    };
                    for start in tried {
                        let found = self.evaluate(start);
                        let (whole, devices) = (self.whole.clone(), devices.clone());
                        starts.extend(found.map(|at| InitialPlan { at, whole, devices }));
                    }
                }
            }
        }
        self.whole = whole;
        starts.sort_by_key(|start| start.at.score.rank());
        starts
    }

    /// All moves in turn, until they gain too little.
    fn settle(&mut self, at: &mut Incumbent, devices: &[(DeviceId, f64)]) {
        for _ in 0..TURNS {
            let before = at.score;
            self.change_axis(at);
            self.change_halos(at);
            self.divide_shares(at);
            self.unsplit(at, devices);
            self.set_fractions(at);
            self.tune_ratios(at, &FINE);
            if self.is_over() || at.score.value > before.value * ENOUGH && at.score.violation >= before.violation {
                break;
            }
        }
    }

    /// The fastest devices, two to all of them.
    fn subsets(&self) -> Vec<Vec<(DeviceId, f64)>> {
        let instance = &self.request.instance;
        let speeds = speeds(&instance.costs, instance.network.devices.len());
        let mut fast: Vec<(DeviceId, f64)> = (0u32..).map(DeviceId).zip(speeds).collect();
        fast.retain(|(_, speed)| *speed > 0.0);
        // Of equal devices the source first: it needs no transfer of the inputs.
        fast.sort_by(|a, b| {
            let far = |d: DeviceId| (d != instance.network.source, d);
            b.1.total_cmp(&a.1).then(far(a.0).cmp(&far(b.0)))
        });
        let most = fast.len().min(MAX_DEVICES);
        (2..=most).rev().map(|n| fast[..n].to_vec()).collect()
    }

    /// Every group that can be split, along the axis that needs the least from elsewhere.
    fn cheapest_axes(&self, devices: &[(DeviceId, f64)]) -> Option<Choices> {
        let instance = &self.request.instance;
        let mut layouts: BTreeMap<TensorId, ResultLayout> = BTreeMap::new();
        let mut choices = Choices::new();
        for (group, operators) in instance.split_options.groups.iter().enumerate() {
            let able: Vec<&(DeviceId, f64)> =
                devices.iter().filter(|(d, _)| instance.costs[group][d.0 as usize].is_some()).collect();
            if able.len() < 2 {
                continue;
            }
            let fits = |option: &&SplitOption| option.can_have_shards(able.len());
            let options = instance.split_options.group(group);
            let priced =
                options.iter().enumerate().filter(|(_, option)| fits(option)).map(|(number, option)| {
                    (number, option, self.exchange(group, option, &layouts, able.len() as f64))
                });
            let best = priced.min_by(|a, b| a.2.total_cmp(&b.2).then(b.1.size.min(64).cmp(&a.1.size.min(64))));
            let Some((number, option, _)) = best else { continue };
            let outputs = operators.iter().flat_map(|id| &instance.split_options.graph.operator(*id).outputs);
            layouts.extend(outputs.map(|tensor| (*tensor, option.layout.clone())));
            let fractions = able.iter().map(|(_, speed)| *speed).collect();
            let devices = able.iter().map(|(d, _)| *d).collect();
            choices.insert(group, Choice { option: number, fractions, devices, halo: Halo::Exchanged });
        }
        (!choices.is_empty()).then_some(choices)
    }

    /// About how many bytes must move if a group is split so over `n` equal devices. `layouts` has the tensors of groups that are
    /// split before it; others are whole on one device.
    fn exchange(&self, group: usize, option: &SplitOption, layouts: &BTreeMap<TensorId, ResultLayout>, n: f64) -> f64 {
        let options = &self.request.instance.split_options;
        let graph = options.graph;
        let size = |t: &TensorId| graph.tensor(*t).ty.bytes().map_or(0.0, |b| b.0 as f64);
        let read = option.reads.iter().map(|(tensor, need)| match (need, layouts.get(tensor)) {
            (_, Some(ResultLayout::Replicated)) => 0.0,
            (Need::Whole, _) => (n - 1.0) * size(tensor),
            (Need::Part(axis), Some(ResultLayout::Split(side))) if axis == side => 0.0,
            (Need::Part(_) | Need::First, _) => (1.0 - 1.0 / n) * size(tensor),
        });
        let last = options.groups[group].last().map(|id| graph.operator(*id));
        let made: f64 = last.iter().flat_map(|operator| &operator.outputs).map(size).sum();
        let summed = if option.layout == ResultLayout::Partial { n * made } else { 0.0 };
        read.sum::<f64>() + summed
    }

    /// What `choices` are worth; `None` if they cannot be computed, or change nothing.
    pub(super) fn evaluate(&mut self, choices: Choices) -> Option<Incumbent> {
        self.spent += 1;
        let expanded = self.request.expand(&choices).ok()?;
        if expanded.divisions.is_empty() {
            return None;
        }
        let devices = devices(&expanded, &self.whole)?;
        let score = FastEvaluator::new(&expanded.problem).score(&devices, &expanded.order()).ok()?;
        Some(Incumbent { choices, score, devices, evaluations: 0 })
    }

    fn keep(&mut self, found: Incumbent) {
        let better = |than: &Score| found.score.better(than);
        if better(&self.floor) && self.best.as_ref().is_none_or(|best| better(&best.score)) {
            self.best = Some(found);
        }
    }
}
