//! Schedules of a device that need less memory: another order, recomputed operators, tiled segments.
//!
//! A schedule is a graph transformation, like a split: [`apply_schedules`] writes it into the graph, and everything that
//! works on graphs works on the result. The numbering of the result follows from the graph and the schedules alone, so
//! that an executor finds the operators that the plan names.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::problem::DeviceId;
use edgecut_graph::{Graph, OperatorId, Part, TensorId};
use edgecut_memory::{
    check::values,
    model::{ReplayError, UnrolledGraph, replay},
};
use edgecut_ops::passes::{
    shard::SplitError,
    tile::{SplitAxes, TiledSegment, tile_graph},
};

/// The schedule of one run of a device: consecutive groups of which none depends on another one through another device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub device: DeviceId,
    /// The operators of the run; a tiled segment is consecutive in this order.
    pub operators: Vec<OperatorId>,
    /// The tiled segments.
    #[serde(default, alias = "stretches", skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<TiledSegment>,
    /// The operators of each step, numbered as in the run's own graph with its segments tiled; those in several steps are
    /// recomputed.
    pub steps: Vec<Vec<OperatorId>>,
}

/// A graph with schedules applied.
#[derive(Debug, Clone)]
pub struct ScheduledGraph {
    pub graph: Graph,
    /// By schedule and step: the operators in the new graph.
    pub steps: Vec<Vec<Vec<OperatorId>>>,
    /// For operators of the original graph that belong to no schedule: their new ids.
    pub unscheduled: HashMap<OperatorId, OperatorId>,
}

/// Schedules that are inconsistent or of another graph.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error("operator {0} of a schedule does not exist or is in two schedules")]
    Foreign(u32),
    #[error("a tiled segment of a schedule is not consecutive in its operators")]
    TiledSegment,
    #[error(transparent)]
    Split(#[from] SplitError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(transparent)]
    Value(#[from] values::ValueViolation),
    #[error("the schedules depend on each other in a cycle")]
    Cycle,
}

/// Applies `schedules` to `graph`.
///
/// # Errors
/// If they are not schedules of the graph, or the result would not compute the same outputs.
pub fn apply_schedules(graph: &Graph, schedules: &[Schedule]) -> Result<ScheduledGraph, ScheduleError> {
    let mut taken: HashSet<OperatorId> = HashSet::new();
    for id in schedules.iter().flat_map(|schedule| &schedule.operators) {
        if id.0 as usize >= graph.operators().len() || !taken.insert(*id) {
            return Err(ScheduleError::Foreign(id.0));
        }
    }
    let runs = schedules.iter().map(|schedule| ScheduledRun::of(graph, schedule)).collect::<Result<Vec<_>, _>>()?;
    let mut merge = Merge { source: graph, out: Graph::new(), copies: HashMap::new(), unscheduled: HashMap::new() };
    merge.copies = merge.out.copy_outside(graph);
    let mut left: Vec<OperatorId> = graph.operators().map(|(id, _)| id).filter(|id| !taken.contains(id)).collect();
    let mut open: Vec<OpenRun<'_>> = runs.iter().map(OpenRun::of).collect();
    loop {
        let before = merge.out.operators().len();
        left.retain(|id| !merge.add_unscheduled(*id));
        open.iter_mut().for_each(|run| while merge.add_step(run) {});
        if merge.out.operators().len() == before {
            break;
        }
    }
    if !left.is_empty() || open.iter().any(|run| run.steps.len() < run.run.scheduled.steps.len()) {
        return Err(ScheduleError::Cycle);
    }
    for output in &graph.outputs {
        let new = merge.copies.get(output).copied().ok_or(ScheduleError::Cycle)?;
        merge.out.outputs.push(new);
    }
    let steps = open.into_iter().map(|run| run.steps).collect();
    Ok(ScheduledGraph { graph: merge.out, steps, unscheduled: merge.unscheduled })
}

/// Limit on the tiles of a segment; a plan file with more is invalid.
const MAX_TILES: u64 = 4096;

/// A run as a graph of its own, and that graph with the schedule applied.
struct ScheduledRun {
    part: Part,
    scheduled: UnrolledGraph,
}

impl ScheduledRun {
    fn of(graph: &Graph, schedule: &Schedule) -> Result<ScheduledRun, ScheduleError> {
        let part = Part::cut(graph, &schedule.operators);
        let here: HashMap<OperatorId, OperatorId> =
            (0u32..).zip(&part.whole_operator).map(|(here, whole)| (*whole, OperatorId(here))).collect();
        let local =
            |ids: &[OperatorId]| -> Option<Vec<OperatorId>> { ids.iter().map(|id| here.get(id).copied()).collect() };
        let order = local(&schedule.operators).ok_or(ScheduleError::TiledSegment)?;
        // Whatever is computed in tiles has a step for each, so that a graph is no larger than the file that asks for it.
        let steps: usize = schedule.steps.iter().map(Vec::len).sum();
        let tiles =
            schedule.segments.iter().map(|segment| segment.tiles.saturating_mul(segment.operators.len() as u64));
        if tiles.fold(0, u64::saturating_add) > steps as u64 {
            return Err(ScheduleError::TiledSegment);
        }
        let tiled_graph = if schedule.segments.is_empty() {
            part.graph.clone()
        } else {
            let segment = |segment: &TiledSegment| {
                let is_split = (2..=MAX_TILES).contains(&segment.tiles) && !segment.operators.is_empty();
                Some(TiledSegment { operators: local(&segment.operators).filter(|_| is_split)?, ..segment.clone() })
            };
            let segments = schedule.segments.iter().map(segment).collect::<Option<Vec<_>>>();
            tile_graph(&SplitAxes::of(&part.graph), &covering(&order, segments.ok_or(ScheduleError::TiledSegment)?)?)?
                .graph
        };
        let scheduled = replay(&tiled_graph, &schedule.steps)?;
        values::values(&tiled_graph, &scheduled.graph)?;
        Ok(ScheduledRun { part, scheduled })
    }
}

/// `segments`, and each other operator of `order` as an untiled segment of its own.
fn covering(order: &[OperatorId], segments: Vec<TiledSegment>) -> Result<Vec<TiledSegment>, ScheduleError> {
    let mut begins: HashMap<OperatorId, TiledSegment> =
        segments.into_iter().filter_map(|segment| Some((*segment.operators.first()?, segment))).collect();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(id) = order.get(at) {
        let whole = || TiledSegment { operators: vec![*id], tiles: 1, axis: 0 };
        let segment = begins.remove(id).unwrap_or_else(whole);
        if order.get(at..at + segment.operators.len()) != Some(&segment.operators) {
            return Err(ScheduleError::TiledSegment);
        }
        at += segment.operators.len();
        all.push(segment);
    }
    if begins.is_empty() { Ok(all) } else { Err(ScheduleError::TiledSegment) }
}

/// A run that is being merged.
struct OpenRun<'a> {
    run: &'a ScheduledRun,
    /// For tensors computed in the run: the tensor of the merged graph.
    copies: HashMap<TensorId, TensorId>,
    /// For inputs of the run: the tensor of the source graph.
    inputs: HashMap<TensorId, TensorId>,
    /// For outputs of the run: the tensor of the source graph.
    outputs: Vec<(TensorId, TensorId)>,
    /// The operators of the steps so far, in the merged graph.
    steps: Vec<Vec<OperatorId>>,
}

impl<'a> OpenRun<'a> {
    fn of(run: &'a ScheduledRun) -> OpenRun<'a> {
        let outside = |graph: &Graph| -> Vec<TensorId> {
            graph.tensors().map(|(id, _)| id).filter(|id| graph.producer(*id).is_none()).collect()
        };
        let whole = |id: &TensorId| run.part.whole_tensor[id.0 as usize];
        let inputs =
            outside(&run.scheduled.graph).into_iter().zip(outside(&run.part.graph).iter().map(whole)).collect();
        let outputs =
            run.scheduled.graph.outputs.iter().copied().zip(run.part.graph.outputs.iter().map(whole)).collect();
        OpenRun { run, copies: HashMap::new(), inputs, outputs, steps: Vec::new() }
    }
}

/// Merges runs and unscheduled operators into one graph.
struct Merge<'a> {
    source: &'a Graph,
    out: Graph,
    /// For tensors of the source graph: the tensor of the merged graph, once it is there.
    copies: HashMap<TensorId, TensorId>,
    unscheduled: HashMap<OperatorId, OperatorId>,
}

impl Merge<'_> {
    /// Adds an operator that belongs to no run, if its operands are available.
    fn add_unscheduled(&mut self, id: OperatorId) -> bool {
        let operator = self.source.operator(id);
        let at = |t: TensorId| self.copies.get(&t).copied();
        if !operator.operands().all(|t| at(t).is_some()) {
            return false;
        }
        let new = self.out.copy_operator(self.source, id, |t| self.copies.get(&t).copied().unwrap_or(t));
        let outputs = operator.outputs.iter().copied().zip(self.out.operator(new).outputs.clone());
        self.copies.extend(outputs);
        self.unscheduled.insert(id, new);
        true
    }

    /// Adds the next step of a run, if its operands from outside are available.
    fn add_step(&mut self, open: &mut OpenRun<'_>) -> bool {
        let graph = &open.run.scheduled.graph;
        let Some(step) = open.run.scheduled.steps.get(open.steps.len()) else { return false };
        let mut outside = step.iter().flat_map(|id| graph.operator(*id).operands()).filter_map(|t| open.inputs.get(&t));
        if !outside.all(|t| self.copies.contains_key(t)) {
            return false;
        }
        let mut operators = Vec::with_capacity(step.len());
        for id in step {
            let at =
                |t: TensorId| open.inputs.get(&t).map_or_else(|| open.copies.get(&t), |t| self.copies.get(t)).copied();
            let new = self.out.copy_operator(graph, *id, |t| at(t).unwrap_or(t));
            let outputs: Vec<_> =
                graph.operator(*id).outputs.iter().copied().zip(self.out.operator(new).outputs.clone()).collect();
            for (old, new) in outputs {
                open.copies.insert(old, new);
                self.copies.extend(open.outputs.iter().filter(|(from, _)| *from == old).map(|(_, to)| (*to, new)));
            }
            operators.push(new);
        }
        open.steps.push(operators);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_also_read_as_stretches() {
        let segment = TiledSegment { operators: vec![OperatorId(1)], tiles: 2, axis: 0 };
        let schedule = Schedule {
            device: DeviceId(0),
            operators: vec![OperatorId(1)],
            segments: vec![segment],
            steps: vec![vec![OperatorId(0)]],
        };
        let json = serde_json::to_string(&schedule).unwrap();
        assert!(json.contains("\"segments\""), "{json}");
        for text in [json.clone(), json.replace("segments", "stretches")] {
            assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
        }
    }
}
