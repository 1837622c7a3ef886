//! Finds splits: good plans for all groups at once first, then local improvements segment by segment.
//!
//! 1. For every number of devices, the fastest ones, in proportion to their speeds and equally, with halos exchanged and
//!    recomputed: what dynamic programming finds ([`super::layout_search`]), and every group split along the axis that asks for
//!    the fewest bytes from elsewhere, given how the groups before it are split. The best of these goes on first.
//! 2. It goes on by the moves of [`super::moves`] on [segments](super::segments), of all layers at once and of program order:
//!    fractions moved from device to device, another axis, fewer devices, halos recomputed instead of exchanged, shares in
//!    [pieces](super::pieces) that are sent earlier, or not split at all. Which kind of move comes first decides where it
//!    ends: two orders are tried.
//!
//! Everything is judged by simulating the problem that comes out. The same request gives the same candidate.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::resume_unwind,
    thread,
};

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

/// Plans of the other order of moves must be better by this where two searches share the starts: smaller differences are below the noise of
/// measurements, and it leaves more exchanges, of which not all costs are known at first.
const OTHER_ORDER_GAIN: f64 = 0.99;

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
#[derive(Clone)]
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
/// There are two searches at once, each of at most `budget` evaluations. If halos can be recomputed, one search only exchanges them,
/// and its plan wins unless recomputing gains enough. Otherwise the searches share the plans to start from.
pub fn search(
    request: &PlanRequest<'_>,
    whole: &[DeviceId],
    score: Score,
    budget: u64,
    before: Option<&Choices>,
) -> Option<Incumbent> {
    let mut free = Search::new(request, whole, score, budget);
    if let Some(before) = before.filter(|choices| !choices.is_empty())
        && let Some(mut at) = free.evaluate(before.clone())
        && let Some(devices) = free.subsets().first()
    {
        free.settle(&mut at, devices);
        free.keep(at);
        return free.found();
    }
    let starts = free.initial_plans();
    if request.goal.halo.is_some() || before.is_some() {
        return free.run(in_turn(starts));
    }
    let exchanging = request.with_goal(Goal { halo: Some(Halo::Exchanged), ..request.goal.clone() });
    if !starts.iter().any(|start| recomputes(&start.at)) {
        return shared(|budget| Search::new(&exchanging, whole, score, budget), starts, budget);
    }
    let exchange = || {
        let mut search = Search::new(&exchanging, whole, score, budget);
        let starts = search.initial_plans();
        search.run(in_turn(starts))
    };
    let (free, exchanged) = at_once(|| free.run(in_turn(starts)), exchange);
    let spent = spent([&exchanged, &free]);
    let gains_enough = |found: &Incumbent| {
        let ratio = if recomputes(found) { HALO_GAIN } else { 1.0 };
        exchanged.as_ref().is_none_or(|than| gains(&found.score, &than.score, ratio))
    };
    let best = free.filter(gains_enough).or(exchanged);
    best.map(|best| Incumbent { evaluations: spent, ..best })
}

/// The best plan that two searches at once find from `starts`: one follows every second of them; the other begins with the other order
/// of moves from the best one.
fn shared<'a, 'b: 'a>(
    search: impl Fn(u64) -> Search<'a, 'b> + Sync,
    starts: Vec<InitialPlan>,
    budget: u64,
) -> Option<Incumbent> {
    let best: Vec<InitialPlan> = starts.first().cloned().into_iter().collect();
    let (own, others) = dealt(starts);
    let follow = |starts: &[InitialPlan], order, budget| search(budget).run(in_order(starts, order));
    let second = || {
        let for_best = if others.is_empty() { budget } else { budget / 2 };
        let other_order = follow(&best, Order::HalosFirst, for_best);
        (other_order, follow(&others, Order::RatiosFirst, budget - for_best))
    };
    let (first, (other_order, second)) = at_once(|| follow(&own, Order::RatiosFirst, budget), second);
    let spent = spent([&first, &other_order, &second]);
    let is_better = |found: &Incumbent| first.as_ref().is_none_or(|than| found.score.better(&than.score));
    let best = second.filter(is_better).or(first);
    let gains_enough =
        |found: &Incumbent| best.as_ref().is_none_or(|than| gains(&found.score, &than.score, OTHER_ORDER_GAIN));
    let best = other_order.filter(gains_enough).or(best);
    best.map(|best| Incumbent { evaluations: spent, ..best })
}

/// Both results; `other` in a thread of its own, if the system has one.
fn at_once<A, B: Send>(one: impl FnOnce() -> A, other: impl Fn() -> B + Sync) -> (A, B) {
    thread::scope(|scope| {
        let spawned = thread::Builder::new().spawn_scoped(scope, &other);
        let one = one();
        match spawned {
            Ok(spawned) => (one, spawned.join().unwrap_or_else(|panicked| resume_unwind(panicked))),
            Err(_) => (one, other()),
        }
    })
}

fn spent<const N: usize>(found: [&Option<Incumbent>; N]) -> u64 {
    found.into_iter().flatten().map(|found| found.evaluations).sum()
}

fn recomputes(found: &Incumbent) -> bool {
    found.choices.values().any(|choice| choice.halo == Halo::Recomputed)
}

/// Whether a plan is worth more than `than` by this ratio, or violates less.
pub(super) fn gains(plan: &Score, than: &Score, ratio: f64) -> bool {
    match plan.violation == than.violation {
        true => plan.value < ratio * than.value,
        false => plan.violation < than.violation,
    }
}

/// In which order a plan is improved.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    RatiosFirst,
    HalosFirst,
}

/// Part of a search: from one plan in one order.
struct Descent {
    start: InitialPlan,
    order: Order,
    /// It may spend `1 / part` of the evaluations that are left.
    part: u64,
}

/// Both orders from each start, the best start first.
fn in_turn(starts: Vec<InitialPlan>) -> Vec<Descent> {
    let both = |start: InitialPlan| {
        let ratios = Descent { start: start.clone(), order: Order::RatiosFirst, part: 2 };
        [ratios, Descent { start, order: Order::HalosFirst, part: 1 }]
    };
    starts.into_iter().flat_map(both).collect()
}

/// One order from each start. Each but the last leaves half of the evaluations to those after it.
fn in_order(starts: &[InitialPlan], order: Order) -> Vec<Descent> {
    let part = |number: usize| if number + 1 < starts.len() { 2 } else { 1 };
    let descent = |(number, start): (usize, &InitialPlan)| Descent { start: start.clone(), order, part: part(number) };
    starts.iter().enumerate().map(descent).collect()
}

/// Every second start for each of two searches: first the best one of each set of devices, then the others.
fn dealt(starts: Vec<InitialPlan>) -> (Vec<InitialPlan>, Vec<InitialPlan>) {
    let mut tried: BTreeSet<Vec<DeviceId>> = BTreeSet::new();
    let is_first = |start: &InitialPlan| tried.insert(start.devices.iter().map(|(device, _)| *device).collect());
    let (firsts, others): (Vec<_>, Vec<_>) = starts.into_iter().partition(is_first);
    let (mut own, mut given) = (Vec::new(), Vec::new());
    for (number, start) in firsts.into_iter().chain(others).enumerate() {
        if number % 2 == 0 { &mut own } else { &mut given }.push(start);
    }
    (own, given)
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

impl<'a, 'b> Search<'a, 'b> {
    fn new(request: &'a PlanRequest<'b>, whole: &[DeviceId], floor: Score, budget: u64) -> Search<'a, 'b> {
        let layers = Layers::of(&request.instance.representatives);
        let of_layers = layers.iter().flat_map(Layers::segments).collect();
        Search { request, of_layers, whole: whole.to_vec(), spent: 0, budget, limit: budget, best: None, floor }
    }

    /// The best plan of these descents, while evaluations are left.
    fn run(mut self, descents: Vec<Descent>) -> Option<Incumbent> {
        for Descent { start, order, part } in descents {
            self.limit = self.spent + self.budget.saturating_sub(self.spent) / part;
            let InitialPlan { mut at, whole, devices } = start;
            self.whole = whole;
            match order {
                Order::RatiosFirst => self.tune_ratios(&mut at, &COARSE),
                Order::HalosFirst => {
                    self.change_halos(&mut at);
                    self.unsplit(&mut at, &devices);
                    self.tune_ratios(&mut at, &STEPS);
                }
            }
            self.settle(&mut at, &devices);
            self.keep(at);
            self.limit = self.budget;
            if self.is_over() {
                break;
            }
        }
        self.found()
    }

    /// The best of all that was found, with what was spent on all of it.
    fn found(self) -> Option<Incumbent> {
        let Search { best, spent, .. } = self;
        best.map(|found| Incumbent { evaluations: spent, ..found })
    }

    pub(super) fn is_over(&self) -> bool {
        self.spent >= self.limit.min(self.budget) || self.request.goal.search.stop.is_requested()
    }

    /// The plans to go on from, the best first: see the module's head.
    fn initial_plans(&mut self) -> Vec<InitialPlan> {
        let whole = self.whole.clone();
        let mut starts: Vec<InitialPlan> = Vec::new();
        for devices in self.subsets() {
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
            self.leave_out(at);
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
