//! How a device computes a run of its groups in less memory: in another order, some of them more than once, stretches of
//! them in parts one after the other.
//!
//! A schedule is a change of the graph, as a split is: [`scheduled`] writes it out, and everything that works on graphs
//! works on what comes of it. Its numbering follows from the graph and the schedules alone, so that whoever runs a plan
//! finds the operators that the plan speaks of.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::DeviceId;
use crate::{
    graph::{Graph, OperatorId, Part, TensorId},
    memory::{
        check::values,
        model::{Scheduled, Unmade, replayed},
    },
    ops::{
        shard::SplitError,
        tiled::{Splits, Stretch, tiled},
    },
};

/// The schedule of one run of groups of a device: groups none of which waits for what another device makes of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub device: DeviceId,
    /// The run's operators, in the order that stretches are stretches of.
    pub operators: Vec<OperatorId>,
    /// Those that are computed in parts, and in how many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stretches: Vec<Stretch>,
    /// What runs, step by step. Operators are those of the graph that the run is by itself, its stretches in parts; those
    /// that stand in several steps are computed again.
    pub steps: Vec<Vec<OperatorId>>,
}

/// A graph in which schedules are written out.
#[derive(Debug, Clone)]
pub struct Written {
    pub graph: Graph,
    /// By schedule and step: the operators.
    pub steps: Vec<Vec<Vec<OperatorId>>>,
    /// Where the operators of the graph before are that belong to no schedule.
    pub kept: HashMap<OperatorId, OperatorId>,
}

/// Schedules that were made for another graph, or contradict themselves.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error("a schedule names operator {0}, which is not there, or in two schedules")]
    Foreign(u32),
    #[error("a stretch of a schedule is no stretch of its operators")]
    Stretch,
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error(transparent)]
    Unmade(#[from] Unmade),
    #[error(transparent)]
    Value(#[from] values::Flaw),
    #[error("a schedule waits for what is computed after it")]
    Circle,
}

/// Writes `schedules` out in `graph`.
///
/// # Errors
/// If they are not schedules of the graph, or would not compute what it computes.
pub fn scheduled(graph: &Graph, schedules: &[Schedule]) -> Result<Written, ScheduleError> {
    let mut taken: HashSet<OperatorId> = HashSet::new();
    for id in schedules.iter().flat_map(|schedule| &schedule.operators) {
        if id.0 as usize >= graph.operators().len() || !taken.insert(*id) {
            return Err(ScheduleError::Foreign(id.0));
        }
    }
    let runs = schedules.iter().map(|schedule| Run::of(graph, schedule)).collect::<Result<Vec<_>, _>>()?;
    let mut merge = Merge { whole: graph, out: Graph::new(), at: HashMap::new(), kept: HashMap::new() };
    merge.at = merge.out.copy_outside(graph);
    let mut left: Vec<OperatorId> = graph.operators().map(|(id, _)| id).filter(|id| !taken.contains(id)).collect();
    let mut open: Vec<Open<'_>> = runs.iter().map(Open::of).collect();
    loop {
        let before = merge.out.operators().len();
        left.retain(|id| !merge.keep(*id));
        open.iter_mut().for_each(|run| while merge.step(run) {});
        if merge.out.operators().len() == before {
            break;
        }
    }
    if !left.is_empty() || open.iter().any(|run| run.steps.len() < run.run.made.steps.len()) {
        return Err(ScheduleError::Circle);
    }
    for output in &graph.outputs {
        let new = merge.at.get(output).copied().ok_or(ScheduleError::Circle)?;
        merge.out.outputs.push(new);
    }
    let steps = open.into_iter().map(|run| run.steps).collect();
    Ok(Written { graph: merge.out, steps, kept: merge.kept })
}

/// Stretches in more parts than this are a mistake in the file.
const MOST_PARTS: u64 = 4096;

/// A run cut out and scheduled.
struct Run {
    part: Part,
    made: Scheduled,
}

impl Run {
    fn of(graph: &Graph, schedule: &Schedule) -> Result<Run, ScheduleError> {
        let part = Part::cut(graph, &schedule.operators);
        let here: HashMap<OperatorId, OperatorId> =
            (0u32..).zip(&part.whole_operator).map(|(here, whole)| (*whole, OperatorId(here))).collect();
        let local =
            |ids: &[OperatorId]| -> Option<Vec<OperatorId>> { ids.iter().map(|id| here.get(id).copied()).collect() };
        let order = local(&schedule.operators).ok_or(ScheduleError::Stretch)?;
        let in_parts = if schedule.stretches.is_empty() {
            part.graph.clone()
        } else {
            let stretch = |stretch: &Stretch| {
                let is_split = (2..=MOST_PARTS).contains(&stretch.parts) && !stretch.operators.is_empty();
                Some(Stretch { operators: local(&stretch.operators).filter(|_| is_split)?, ..stretch.clone() })
            };
            let stretches = schedule.stretches.iter().map(stretch).collect::<Option<Vec<_>>>();
            tiled(&Splits::of(&part.graph), &covering(&order, stretches.ok_or(ScheduleError::Stretch)?)?)?.graph
        };
        let made = replayed(&in_parts, &schedule.steps)?;
        values::values(&in_parts, &made.graph)?;
        Ok(Run { part, made })
    }
}

/// `stretches` with all other operators of `order` between them, each by itself.
fn covering(order: &[OperatorId], stretches: Vec<Stretch>) -> Result<Vec<Stretch>, ScheduleError> {
    let mut begins: HashMap<OperatorId, Stretch> =
        stretches.into_iter().filter_map(|stretch| Some((*stretch.operators.first()?, stretch))).collect();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(id) = order.get(at) {
        let whole = || Stretch { operators: vec![*id], parts: 1, axis: 0 };
        let stretch = begins.remove(id).unwrap_or_else(whole);
        if order.get(at..at + stretch.operators.len()) != Some(&stretch.operators) {
            return Err(ScheduleError::Stretch);
        }
        at += stretch.operators.len();
        all.push(stretch);
    }
    if begins.is_empty() { Ok(all) } else { Err(ScheduleError::Stretch) }
}

/// A run that is being written out.
struct Open<'a> {
    run: &'a Run,
    /// What of the run's own graph is where.
    at: HashMap<TensorId, TensorId>,
    /// For what comes to the run from outside: the tensor of the whole.
    from: HashMap<TensorId, TensorId>,
    /// For the run's results: the tensors of the whole that they are.
    to: Vec<(TensorId, TensorId)>,
    /// The steps so far, by their operators.
    steps: Vec<Vec<OperatorId>>,
}

impl<'a> Open<'a> {
    fn of(run: &'a Run) -> Open<'a> {
        let outside = |graph: &Graph| -> Vec<TensorId> {
            graph.tensors().map(|(id, _)| id).filter(|id| graph.producer(*id).is_none()).collect()
        };
        let whole = |id: &TensorId| run.part.whole_tensor[id.0 as usize];
        let from = outside(&run.made.graph).into_iter().zip(outside(&run.part.graph).iter().map(whole)).collect();
        let to = run.made.graph.outputs.iter().copied().zip(run.part.graph.outputs.iter().map(whole)).collect();
        Open { run, at: HashMap::new(), from, to, steps: Vec::new() }
    }
}

/// The graph that is being made.
struct Merge<'a> {
    whole: &'a Graph,
    out: Graph,
    /// What of the whole graph is where, as far as it is there.
    at: HashMap<TensorId, TensorId>,
    kept: HashMap<OperatorId, OperatorId>,
}

impl Merge<'_> {
    /// Adds an operator that belongs to no run, if its operands are there.
    fn keep(&mut self, id: OperatorId) -> bool {
        let operator = self.whole.operator(id);
        let at = |t: TensorId| self.at.get(&t).copied();
        if !operator.operands().all(|t| at(t).is_some()) {
            return false;
        }
        let new = self.out.copy_operator(self.whole, id, |t| self.at.get(&t).copied().unwrap_or(t));
        let outputs = operator.outputs.iter().copied().zip(self.out.operator(new).outputs.clone());
        self.at.extend(outputs);
        self.kept.insert(id, new);
        true
    }

    /// Adds the next step of a run, if what it reads from outside is there.
    fn step(&mut self, open: &mut Open<'_>) -> bool {
        let graph = &open.run.made.graph;
        let Some(step) = open.run.made.steps.get(open.steps.len()) else { return false };
        let mut outside = step.iter().flat_map(|id| graph.operator(*id).operands()).filter_map(|t| open.from.get(&t));
        if !outside.all(|t| self.at.contains_key(t)) {
            return false;
        }
        let mut made = Vec::with_capacity(step.len());
        for id in step {
            let at = |t: TensorId| open.from.get(&t).map_or_else(|| open.at.get(&t), |t| self.at.get(t)).copied();
            let new = self.out.copy_operator(graph, *id, |t| at(t).unwrap_or(t));
            let outputs: Vec<_> =
                graph.operator(*id).outputs.iter().copied().zip(self.out.operator(new).outputs.clone()).collect();
            for (old, new) in outputs {
                open.at.insert(old, new);
                self.at.extend(open.to.iter().filter(|(from, _)| *from == old).map(|(_, to)| (*to, new)));
            }
            made.push(new);
        }
        open.steps.push(made);
        true
    }
}
