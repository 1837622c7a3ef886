//! Runs: consecutive groups of a device without a round trip through another device, and their schedules.

use std::collections::{HashMap, HashSet};

use crate::{
    candidate::Candidate,
    judge::{evaluation::Evaluation, memory_usage::MemoryUsage, task_graph::ReplicaOrigin},
    plan_file::schedule::Schedule,
    problem::{Cost, DeviceId, GroupId, Problem, part_name::part_name},
    request::{
        costs::{Proportional, Shard},
        expand::Expanded,
        instance::Instance,
    },
};
use edgecut_graph::{
    Graph, OperatorId, Origin as TensorOrigin, Part,
    units::{Bytes, Micros},
};
use edgecut_memory::{
    model::{Group, GroupCosts, GroupedGraph, Model, ScheduleFront, schedule_model},
    remat::RematOptions,
};
use edgecut_ops::passes::tile::TiledSegment;

/// Maximum number of groups in a run: scheduling more would take minutes.
const MOST_GROUPS: usize = 2_000;

/// Consecutive groups of a device, none dependent on an earlier one through another device, with their schedules.
pub(super) struct Run<'a> {
    pub(super) device: DeviceId,
    expanded: &'a Expanded,
    groups: Vec<GroupId>,
    /// Bytes of the device's other tensors that are live during the run, and of its parameters.
    pub(super) others: Bytes,
    part: Part,
    fitted: ScheduleFront,
}

/// Name and cost of one step of a schedule.
#[derive(Clone)]
pub(super) struct StepCost {
    pub(super) name: String,
    pub(super) cost: Cost,
    /// The group that the step computes, or of which it computes a part.
    pub(super) group: Option<GroupId>,
    pub(super) is_whole: bool,
}

impl<'a> Run<'a> {
    /// The runs of a device whose peak exceeds its memory limit.
    pub(super) fn all(
        instance: &Instance<'_>,
        candidate: &'a Candidate,
        device: DeviceId,
        effort: &RematOptions,
    ) -> Vec<Run<'a>> {
        let (problem, evaluation) = (&candidate.expanded.problem, &candidate.solution.evaluation);
        let limit = instance.network.devices[device.0 as usize].memory.unwrap_or(Bytes(u64::MAX));
        let account = &evaluation.memory[device.0 as usize];
        let mut runs = Vec::new();
        for groups in uninterrupted(problem, evaluation, device) {
            if groups.len() > MOST_GROUPS || peak(evaluation, account, &groups, device) <= limit {
                continue;
            }
            runs.extend(Run::new(instance, candidate, device, groups, effort));
        }
        runs
    }

    fn new(
        instance: &Instance<'_>,
        candidate: &'a Candidate,
        device: DeviceId,
        groups: Vec<GroupId>,
        effort: &RematOptions,
    ) -> Option<Run<'a>> {
        let expanded = &candidate.expanded;
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
        let grouped =
            GroupedGraph { graph: part.graph.clone(), groups: groups.iter().map(group).collect::<Option<_>>()? };
        let of_first = grouped.groups.iter().zip(&groups).filter_map(|(group, id)| {
            let whole = expanded.of.get(id.0 as usize).copied().flatten();
            let whole = whole.filter(|_| !expanded.shards.contains_key(id));
            Some((*group.operators.first()?, whole?))
        });
        let costs = Parts { instance, graph: &grouped.graph, device, of_first: of_first.collect() };
        let fitted = schedule_model(&Model { grouped: &grouped, costs: &costs, host: None }, effort).ok()?;
        let others = others(problem, &candidate.solution.evaluation, device, &groups);
        Some(Run { device, expanded, groups, others, part, fitted })
    }

    /// The fastest schedule within `bytes`, else the one of lowest peak.
    pub(super) fn within(&self, bytes: u64) -> Option<(Schedule, Vec<StepCost>)> {
        let found = self.fitted.within_memory(Bytes(bytes)).or_else(|| self.fitted.front().into_iter().next())?;
        let (variant, numbers) = (found.variant, found.groups());
        let whole = |id: &OperatorId| self.part.whole_operator[id.0 as usize];
        let segment = |segment: &TiledSegment| TiledSegment {
            operators: segment.operators.iter().map(whole).collect(),
            ..segment.clone()
        };
        let steps: Vec<Vec<OperatorId>> =
            numbers.iter().map(|number| variant.grouped.groups[*number].operators.clone()).collect();
        let mut parts: HashMap<usize, usize> = HashMap::new();
        for (index, _) in variant.origins.iter().flatten() {
            *parts.entry(*index).or_default() += 1;
        }
        let mut programs = Programs::default();
        let cost = |number: &usize| {
            let group = &variant.grouped.groups[*number];
            let origin = variant.origins[*number];
            let id = origin.map(|(index, _)| self.groups[index]);
            let held = programs.held(self, &variant.grouped.graph, &group.operators, id);
            let name = match (origin, id) {
                (Some((index, share)), Some(id)) => {
                    let name = self.expanded.problem.group(id).name.clone();
                    let before = variant.origins[..=*number].iter().flatten().filter(|o| o.0 == index).count();
                    if share < 1.0 { format!("{name}[{}]", part_name(before, parts[&index])) } else { name }
                }
                _ => {
                    let names = group.operators.iter().map(|id| variant.grouped.graph.operator(*id).name.as_str());
                    names.collect::<Vec<_>>().join("+")
                }
            };
            let power = id.and_then(|id| self.expanded.problem.cost(id, self.device)).unwrap_or_default().power;
            let cost = Cost { time: group.time, workspace: group.workspace, held, power };
            StepCost { name, cost, group: id, is_whole: origin.is_some_and(|(_, share)| share >= 1.0) }
        };
        let costs = numbers.iter().map(cost).collect();
        let schedule = Schedule {
            device: self.device,
            operators: variant.order.iter().map(whole).collect(),
            segments: variant.segments.iter().map(segment).collect(),
            steps,
        };
        Some((schedule, costs))
    }
}

/// Programs loaded by an engine for the steps so far: identical steps with the same parameters share one; every other
/// program of a group packs its own weights.
#[derive(Default)]
struct Programs {
    seen: HashSet<String>,
    of: HashSet<GroupId>,
}

impl Programs {
    /// Bytes that a step of `group` adds to the parameters.
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

/// Structural key: equal for steps with the same computation and parameters.
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

/// Costs of parts of a run's groups on its device.
struct Parts<'a, 'b> {
    instance: &'a Instance<'b>,
    graph: &'a Graph,
    device: DeviceId,
    /// First operator of each whole group → number of the group in the request.
    of_first: HashMap<OperatorId, usize>,
}

impl GroupCosts for Parts<'_, '_> {
    fn part(&self, group: &[OperatorId], whole: Micros, share: f64) -> Micros {
        let by_rule = Proportional::default().part(whole, share);
        let Some(number) = group.first().and_then(|first| self.of_first.get(first)) else { return by_rule };
        let shard = Shard { share, group: Some(*number), ..Shard::default() };
        let costs = self.instance.shards.costs(self.graph, &shard, &self.instance.costs[*number]);
        costs.get(self.device.0 as usize).copied().flatten().map_or(by_rule, |cost| cost.time)
    }

    fn copy(&self, bytes: Bytes) -> Micros {
        let rule = Proportional::default();
        rule.launch + rule.copying(bytes)
    }
}

/// The groups of a device in its order, cut where one depends on earlier groups of its run through another device.
fn uninterrupted(problem: &Problem, evaluation: &Evaluation, device: DeviceId) -> Vec<Vec<GroupId>> {
    let homes = &evaluation.placement.devices;
    let consumers = problem.consumers();
    let (mut runs, mut run): (Vec<Vec<GroupId>>, Vec<GroupId>) = Default::default();
    // Transitive successors of the groups of the run.
    let mut follows: HashSet<GroupId> = HashSet::new();
    for job in &evaluation.task_graph.sequences[device.0 as usize] {
        let id = evaluation.task_graph.task(*job).group;
        let producers = problem.group(id).inputs.iter().filter_map(|t| problem.tensor(*t).producer);
        if producers.into_iter().any(|p| homes[p.0 as usize] != device && follows.contains(&p)) {
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

/// Start of the first group of a run and end of the last.
fn window(evaluation: &Evaluation, groups: &[GroupId], device: DeviceId) -> (Micros, Micros) {
    let (first, last) = (groups.first(), groups.last());
    let (mut from, mut to) = (Micros::ZERO, Micros::ZERO);
    for job in &evaluation.task_graph.sequences[device.0 as usize] {
        let group = Some(&evaluation.task_graph.task(*job).group);
        if group == first {
            from = evaluation.timeline.starts[job.0 as usize];
        }
        if group == last {
            to = evaluation.timeline.finishes[job.0 as usize];
        }
    }
    (from, to)
}

/// Peak memory of the device during the run, parameters included.
fn peak(evaluation: &Evaluation, account: &MemoryUsage, groups: &[GroupId], device: DeviceId) -> Bytes {
    let (from, to) = window(evaluation, groups, device);
    let inside = account.allocations.iter().filter(|footprint| footprint.from < to && footprint.to > from);
    let births: Vec<Micros> = inside.clone().map(|footprint| footprint.from.max(from)).collect();
    let at = |instant: &Micros| {
        let alive = inside.clone().filter(|footprint| footprint.from <= *instant && footprint.to > *instant);
        alive.map(|footprint| footprint.bytes).sum::<Bytes>()
    };
    account.parameters + births.iter().map(at).max().unwrap_or_default()
}

/// Bytes of parameters, and of all tensors live on the device during the run that the run neither reads nor writes.
fn others(problem: &Problem, evaluation: &Evaluation, device: DeviceId, groups: &[GroupId]) -> Bytes {
    let (from, to) = window(evaluation, groups, device);
    let touched: HashSet<_> =
        groups.iter().flat_map(|id| problem.group(*id).inputs.iter().chain(&problem.group(*id).outputs)).collect();
    let is_passing = |index: usize| {
        let piece = &evaluation.task_graph.replicas[index];
        let death = piece.readers.iter().map(|job| evaluation.timeline.finishes[job.0 as usize]);
        let sent = piece.copies.iter().map(|copy| evaluation.timeline.arrivals[copy.0 as usize]);
        let dies = death.chain(sent).fold(Micros::ZERO, Micros::max);
        let lives = evaluation.timeline.births[index] < to && (piece.is_result || dies > from);
        let kept =
            piece.view_of.is_none() && !matches!(piece.origin, ReplicaOrigin::Task(_) if piece.bytes == Bytes::ZERO);
        piece.device == device && kept && lives && !touched.contains(&piece.tensor)
    };
    let passing = (0..evaluation.task_graph.replicas.len()).filter(|index| is_passing(*index));
    let parameters = evaluation.memory[device.0 as usize].parameters;
    parameters + passing.map(|index| evaluation.task_graph.replicas[index].bytes).sum()
}
