//! A plan with the schedules of some runs written out: another graph, the groups of which are the schedules' steps and
//! what was not scheduled, each where it was.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::run::StepCost;
use crate::{
    candidate::Candidate,
    judge::{
        evaluation::Evaluation,
        solution::{Solution, arenas},
    },
    plan_file::schedule::{Schedule, ScheduledGraph, apply_schedules},
    problem::{
        Cost, DeviceId, GroupId,
        assemble::{CostedGroup, assemble},
        placement::Placement,
    },
    request::{PlanRequest, costs::Shard, expand::Expanded},
};
use edgecut_graph::{Graph, OperatorId};
use edgecut_ops::is_view;

/// A group of the plan that is being made: what it was, where it runs.
struct Unit {
    name: String,
    operators: Vec<OperatorId>,
    device: DeviceId,
    cost: Cost,
    /// The group before, and whether this is all of it.
    before: Option<GroupId>,
    is_whole: bool,
    /// Its parameters are those of the group before.
    is_kept: bool,
}

/// The plan with the schedules written out.
pub(super) fn rewritten(
    request: &PlanRequest<'_>,
    candidate: &Candidate,
    chosen: Vec<(Schedule, Vec<StepCost>)>,
) -> Option<Candidate> {
    let (expanded, evaluation) = (&candidate.expanded, &candidate.solution.evaluation);
    let (schedules, costs): (Vec<Schedule>, Vec<Vec<StepCost>>) = chosen.into_iter().unzip();
    let written = apply_schedules(&expanded.graph, &schedules).ok()?;
    let mut queues = queues(expanded, evaluation, &schedules, &costs, &written);
    let units = merged(&written.graph, &mut queues)?;

    let PlanRequest { instance, goal } = request;
    let devices = instance.network.devices.len();
    let within = |unit: &Unit| unit.before.and_then(|id| expanded.within[id.0 as usize]);
    let label = |unit: &Unit| within(unit).map_or_else(|| unit.name.clone(), |of| instance.label(of, &unit.name));
    let group = |unit: &Unit| CostedGroup {
        label: label(unit),
        ..CostedGroup::on(unit.device, devices, unit.name.clone(), unit.operators.clone(), unit.cost)
    };
    let groups = units.iter().map(group).collect();
    let (states, network) = (&expanded.states, instance.network.clone());
    let mut problem = assemble(&written.graph, states, groups, network, is_view, goal.objective, goal.targets);
    // Of weights that a shard slices only the slice counts: the problem before knows.
    let old = &expanded.problem;
    problem.parameters.clone_from(&old.parameters);
    for (group, unit) in problem.groups.iter_mut().zip(&units) {
        if let Some(before) = unit.before.filter(|_| unit.is_kept) {
            group.parameters.clone_from(&old.group(before).parameters);
        }
    }
    problem.check().ok()?;
    let homes: Vec<DeviceId> = units.iter().map(|unit| unit.device).collect();
    let order: Vec<GroupId> = problem.group_ids().collect();
    let evaluation = Evaluation::of(&problem, Placement::new(&homes, &order)).ok()?;
    let arenas = arenas(&evaluation.memory).ok()?;
    let before = |unit: &Unit| unit.before.filter(|_| unit.is_whole);
    let of = units.iter().map(|unit| before(unit).and_then(|id| expanded.of[id.0 as usize])).collect();
    let within = units.iter().map(within).collect();
    let moved = |old: &BTreeMap<GroupId, Shard>| -> BTreeMap<GroupId, Shard> {
        let groups = (0u32..).map(GroupId).zip(&units);
        groups.filter_map(|(id, unit)| Some((id, placed(old.get(&before(unit)?)?, &unit.operators)))).collect()
    };
    let (shards, joined) = (moved(&expanded.shards), moved(&expanded.joined));
    let solution = Solution {
        arenas,
        bounds: candidate.solution.bounds.clone(),
        bound: candidate.solution.bound.clone(),
        evaluations: candidate.solution.evaluations,
        in_flight: None,
        missed: Vec::new(),
        is_infeasible: false,
        evaluation,
    };
    let expanded = Expanded { graph: written.graph, problem, of, within, shards, joined, ..expanded.clone() };
    Some(Candidate { solution, expanded, schedules, ..candidate.clone() })
}

/// `shard` with its operators, in program order, as `operators` of another graph.
fn placed(shard: &Shard, operators: &[OperatorId]) -> Shard {
    let at: HashMap<OperatorId, OperatorId> = shard.operators.iter().copied().zip(operators.iter().copied()).collect();
    let copies = shard.copies.iter().filter_map(|id| at.get(id).copied()).collect();
    Shard { operators: operators.to_vec(), copies, ..shard.clone() }
}

/// By device: what it computes in its order, each run that is scheduled step by step.
fn queues(
    expanded: &Expanded,
    evaluation: &Evaluation,
    schedules: &[Schedule],
    costs: &[Vec<StepCost>],
    written: &ScheduledGraph,
) -> Vec<Vec<Unit>> {
    let problem = &expanded.problem;
    let schedule_of: HashMap<OperatorId, usize> = schedules
        .iter()
        .enumerate()
        .flat_map(|(number, schedule)| schedule.operators.iter().map(move |id| (*id, number)))
        .collect();
    let mut done = vec![false; schedules.len()];
    let mut queues = Vec::with_capacity(problem.devices.len());
    for sequence in &evaluation.task_graph.sequences {
        let mut queue: Vec<Unit> = Vec::new();
        for job in sequence.iter().map(|id| evaluation.task_graph.task(*id)) {
            let group = problem.group(job.group);
            match group.operators.first().and_then(|id| schedule_of.get(id)) {
                None => queue.push(Unit {
                    name: group.name.clone(),
                    operators: group.operators.iter().filter_map(|id| written.unscheduled.get(id).copied()).collect(),
                    device: job.device,
                    cost: job.cost,
                    before: Some(job.group),
                    is_whole: true,
                    is_kept: true,
                }),
                Some(&number) if !std::mem::replace(&mut done[number], true) => {
                    let steps = written.steps[number].iter().zip(&costs[number]);
                    queue.extend(steps.map(|(operators, step)| Unit {
                        name: step.name.clone(),
                        operators: operators.clone(),
                        device: job.device,
                        cost: step.cost,
                        before: step.group,
                        is_whole: step.is_whole,
                        is_kept: false,
                    }));
                }
                Some(_) => {}
            }
        }
        queue.reverse();
        queues.push(queue);
    }
    queues
}

/// The units of all queues in one order that can be computed; `None` if there is none. Queues are taken from the back.
fn merged(graph: &Graph, queues: &mut [Vec<Unit>]) -> Option<Vec<Unit>> {
    let mut made: HashSet<OperatorId> = HashSet::new();
    let mut units: Vec<Unit> = Vec::new();
    loop {
        let before = units.len();
        for queue in queues.iter_mut() {
            while let Some(unit) = queue.last() {
                let inside: HashSet<OperatorId> = unit.operators.iter().copied().collect();
                let mut needs = unit.operators.iter().flat_map(|id| graph.operator(*id).operands());
                let is_there = |id: OperatorId| made.contains(&id) || inside.contains(&id);
                if !needs.all(|tensor| graph.producer(tensor).is_none_or(is_there)) {
                    break;
                }
                made.extend(inside);
                units.extend(queue.pop());
            }
        }
        if units.len() == before {
            break;
        }
    }
    queues.iter().all(Vec::is_empty).then_some(units)
}
