//! Runs: consecutive groups of a device that wait for nothing that others make of them, and the schedules found for them.

use std::collections::{HashMap, HashSet};

use crate::{
    graph::{Graph, OperatorId, Origin as TensorOrigin, Part},
    memory::{
        fit,
        model::{self, Costs, Group, Model, Stepped},
    },
    ops::tiled::Stretch,
    plan::{
        DeviceId, GroupId, Problem,
        account::Account,
        evaluate::Evaluation,
        problem::Cost,
        schedule::Schedule,
        split::{Answer, Expanded, Proportional, Shard, Task},
        work::Origin,
    },
    units::{Bytes, Micros},
};

/// More groups than this in one run are not scheduled: that would take minutes.
const MOST_GROUPS: usize = 2_000;

/// Consecutive groups of a device that do not wait for what others make of them, with their schedules.
pub(super) struct Run<'a> {
    pub(super) device: DeviceId,
    expanded: &'a Expanded,
    groups: Vec<GroupId>,
    /// What the device holds beside the run's tensors while it is under way, parameters included.
    pub(super) beside: Bytes,
    part: Part,
    fitted: model::Fitted,
}

/// What one step of a schedule is and costs.
#[derive(Clone)]
pub(super) struct StepCost {
    pub(super) name: String,
    pub(super) cost: Cost,
    /// The group that it is, or is a part of.
    pub(super) group: Option<GroupId>,
    pub(super) is_whole: bool,
}

impl<'a> Run<'a> {
    /// The runs of a device in which something can be gained.
    pub(super) fn all(task: &Task<'_>, answer: &'a Answer, device: DeviceId, effort: &fit::Options) -> Vec<Run<'a>> {
        let (problem, evaluation) = (&answer.expanded.problem, &answer.solution.evaluation);
        let limit = task.network.devices[device.0 as usize].memory.unwrap_or(Bytes(u64::MAX));
        let account = &evaluation.accounts[device.0 as usize];
        let mut runs = Vec::new();
        for groups in uninterrupted(problem, evaluation, device) {
            if groups.len() > MOST_GROUPS || peak(evaluation, account, &groups, device) <= limit {
                continue;
            }
            runs.extend(Run::new(task, answer, device, groups, effort));
        }
        runs
    }

    fn new(
        task: &Task<'_>,
        answer: &'a Answer,
        device: DeviceId,
        groups: Vec<GroupId>,
        effort: &fit::Options,
    ) -> Option<Run<'a>> {
        let expanded = &answer.expanded;
        let problem = &expanded.problem;
        let operators: Vec<OperatorId> =
            groups.iter().flat_map(|group| &problem.group(*group).operators).copied().collect();
        let part = Part::cut(&expanded.graph, &operators);
        let here: HashMap<OperatorId, OperatorId> =
            (0u32..).zip(&part.whole_operator).map(|(here, whole)| (*whole, OperatorId(here))).collect();
        let group = |id: &GroupId| {
            let cost = problem.cost(*id, device)?;
            let mut operators: Vec<OperatorId> =
                problem.group(*id).operators.iter().filter_map(|id| here.get(id).copied()).collect();
            operators.sort_unstable();
            Some(Group { operators, time: cost.time, workspace: cost.workspace, in_place: false })
        };
        let stepped = Stepped { graph: part.graph.clone(), groups: groups.iter().map(group).collect::<Option<_>>()? };
        let of_first = stepped.groups.iter().zip(&groups).filter_map(|(group, id)| {
            let whole = expanded.of.get(id.0 as usize).copied().flatten();
            let whole = whole.filter(|_| !expanded.shards.contains_key(id));
            Some((*group.operators.first()?, whole?))
        });
        let costs = Parts { task, graph: &stepped.graph, device, of_first: of_first.collect() };
        let fitted = model::fit(&Model { stepped: &stepped, costs: &costs, host: None }, effort).ok()?;
        let beside = beside(problem, &answer.solution.evaluation, device, &groups);
        Some(Run { device, expanded, groups, beside, part, fitted })
    }

    /// The fastest schedule within so many bytes, else the smallest one.
    pub(super) fn within(&self, bytes: u64) -> Option<(Schedule, Vec<StepCost>)> {
        let found = self.fitted.within(bytes).or_else(|| self.fitted.front().into_iter().next())?;
        let (variant, numbers) = (found.variant, found.groups());
        let whole = |id: &OperatorId| self.part.whole_operator[id.0 as usize];
        let stretch =
            |stretch: &Stretch| Stretch { operators: stretch.operators.iter().map(whole).collect(), ..stretch.clone() };
        let steps: Vec<Vec<OperatorId>> =
            numbers.iter().map(|number| variant.stepped.groups[*number].operators.clone()).collect();
        let mut parts: HashMap<usize, usize> = HashMap::new();
        for (index, _) in variant.origins.iter().flatten() {
            *parts.entry(*index).or_default() += 1;
        }
        let mut programs = Programs::default();
        let cost = |number: &usize| {
            let group = &variant.stepped.groups[*number];
            let origin = variant.origins[*number];
            let id = origin.map(|(index, _)| self.groups[index]);
            let held = programs.held(self, &variant.stepped.graph, &group.operators, id);
            let name = match (origin, id) {
                (Some((index, share)), Some(id)) => {
                    let name = self.expanded.problem.group(id).name.clone();
                    let before = variant.origins[..=*number].iter().flatten().filter(|o| o.0 == index).count();
                    if share < 1.0 { format!("{name}[{before}/{}]", parts[&index]) } else { name }
                }
                _ => {
                    let names = group.operators.iter().map(|id| variant.stepped.graph.operator(*id).name.as_str());
                    names.collect::<Vec<_>>().join("+")
                }
            };
            let cost = Cost { time: group.time, workspace: group.workspace, held };
            StepCost { name, cost, group: id, is_whole: origin.is_some_and(|(_, share)| share >= 1.0) }
        };
        let costs = numbers.iter().map(cost).collect();
        let schedule = Schedule {
            device: self.device,
            operators: variant.order.iter().map(whole).collect(),
            stretches: variant.stretches.iter().map(stretch).collect(),
            steps,
        };
        Some((schedule, costs))
    }
}

/// What an engine holds for the steps so far: those that compute the same from the same parameters share a program; every
/// other program of a group has packed weights of its own.
#[derive(Default)]
struct Programs {
    seen: HashSet<String>,
    of: HashSet<GroupId>,
}

impl Programs {
    /// What a step of `group` adds to the parameters themselves.
    fn held(&mut self, run: &Run<'_>, graph: &Graph, operators: &[OperatorId], group: Option<GroupId>) -> Bytes {
        let Some(id) = group else { return Bytes::ZERO };
        if !self.seen.insert(key(graph, operators)) {
            return Bytes::ZERO;
        }
        let problem = &run.expanded.problem;
        let held = problem.cost(id, run.device).map(|cost| cost.held).unwrap_or_default();
        let weights = problem.group(id).parameters.iter().map(|p| problem.parameters[p.0 as usize]);
        if self.of.insert(id) { held } else { held + weights.sum() }
    }
}

/// The same for steps that compute the same from the same parameters.
fn key(graph: &Graph, operators: &[OperatorId]) -> String {
    let part = Part::cut(graph, operators);
    let mut key = String::new();
    for (id, tensor) in part.graph.tensors() {
        let from = match tensor.origin {
            TensorOrigin::Parameter | TensorOrigin::Constant(_) => part.whole_tensor[id.0 as usize].0.to_string(),
            _ => String::new(),
        };
        key += &format!("{from}: {}\n", tensor.ty);
    }
    for (_, operator) in part.graph.operators() {
        key += &format!("{} {:?} {:?}\n", operator.name, operator.args, operator.attrs);
    }
    key
}

/// What parts of a run's groups cost on its device.
struct Parts<'a, 'b> {
    task: &'a Task<'b>,
    graph: &'a Graph,
    device: DeviceId,
    /// For the first operator of each whole group the group of the task.
    of_first: HashMap<OperatorId, usize>,
}

impl Costs for Parts<'_, '_> {
    fn part(&self, group: &[OperatorId], whole: Micros, share: f64) -> Micros {
        let by_rule = Proportional::default().part(whole, share);
        let Some(number) = group.first().and_then(|first| self.of_first.get(first)) else { return by_rule };
        let shard = Shard { share, group: Some(*number), ..Shard::default() };
        let costs = self.task.shards.costs(self.graph, &shard, &self.task.costs[*number]);
        costs.get(self.device.0 as usize).copied().flatten().map_or(by_rule, |cost| cost.time)
    }

    fn copy(&self, bytes: Bytes) -> Micros {
        let rule = Proportional::default();
        rule.launch + rule.copying(bytes)
    }
}

/// The groups of a device in its order, cut where one reads what another device made of groups before it.
fn uninterrupted(problem: &Problem, evaluation: &Evaluation, device: DeviceId) -> Vec<Vec<GroupId>> {
    let homes: Vec<Option<DeviceId>> = evaluation.placement.strategies.iter().map(|s| s.devices().next()).collect();
    let consumers = problem.consumers();
    let (mut runs, mut run): (Vec<Vec<GroupId>>, Vec<GroupId>) = Default::default();
    // What follows from the groups of the run.
    let mut follows: HashSet<GroupId> = HashSet::new();
    for job in &evaluation.work.sequences[device.0 as usize] {
        let id = evaluation.work.job(*job).group;
        let producers = problem.group(id).inputs.iter().filter_map(|t| problem.tensor(*t).producer);
        if producers.into_iter().any(|p| homes[p.0 as usize] != Some(device) && follows.contains(&p)) {
            runs.push(std::mem::take(&mut run));
            follows.clear();
        }
        run.push(id);
        let mut open = vec![id];
        while let Some(at) = open.pop() {
            for reader in problem.group(at).outputs.iter().flat_map(|t| &consumers[t.0 as usize]) {
                if follows.insert(*reader) {
                    open.push(*reader);
                }
            }
        }
    }
    runs.push(run);
    runs
}

/// From when to when a run is under way.
fn window(evaluation: &Evaluation, groups: &[GroupId], device: DeviceId) -> (Micros, Micros) {
    let (first, last) = (groups.first(), groups.last());
    let (mut from, mut to) = (Micros::ZERO, Micros::ZERO);
    for job in &evaluation.work.sequences[device.0 as usize] {
        let group = Some(&evaluation.work.job(*job).group);
        if group == first {
            from = evaluation.times.starts[job.0 as usize];
        }
        if group == last {
            to = evaluation.times.finishes[job.0 as usize];
        }
    }
    (from, to)
}

/// The most that the device holds while the run is under way: parameters and all that lives at one time.
fn peak(evaluation: &Evaluation, account: &Account, groups: &[GroupId], device: DeviceId) -> Bytes {
    let (from, to) = window(evaluation, groups, device);
    let inside = account.holdings.iter().filter(|holding| holding.from < to && holding.to > from);
    let births: Vec<Micros> = inside.clone().map(|holding| holding.from.max(from)).collect();
    let at = |instant: &Micros| {
        let alive = inside.clone().filter(|holding| holding.from <= *instant && holding.to > *instant);
        alive.map(|holding| holding.bytes).sum::<Bytes>()
    };
    account.parameters + births.iter().map(at).max().unwrap_or_default()
}

/// Parameters, and all tensors that lie on the device at some time of the run and are not the run's affair.
fn beside(problem: &Problem, evaluation: &Evaluation, device: DeviceId, groups: &[GroupId]) -> Bytes {
    let (from, to) = window(evaluation, groups, device);
    let touched: HashSet<_> =
        groups.iter().flat_map(|id| problem.group(*id).inputs.iter().chain(&problem.group(*id).outputs)).collect();
    let is_passing = |index: usize| {
        let piece = &evaluation.work.pieces[index];
        let death = piece.readers.iter().map(|job| evaluation.times.finishes[job.0 as usize]);
        let sent = piece.copies.iter().map(|copy| evaluation.times.arrivals[copy.0 as usize]);
        let dies = death.chain(sent).fold(Micros::ZERO, Micros::max);
        let lives = evaluation.times.births[index] < to && (piece.is_result || dies > from);
        let kept = piece.view_of.is_none() && !matches!(piece.origin, Origin::Job(_) if piece.bytes == Bytes::ZERO);
        piece.device == device && kept && lives && !touched.contains(&piece.tensor)
    };
    let passing = (0..evaluation.work.pieces.len()).filter(|index| is_passing(*index));
    let parameters = evaluation.accounts[device.0 as usize].parameters;
    parameters + passing.map(|index| evaluation.work.pieces[index].bytes).sum()
}
