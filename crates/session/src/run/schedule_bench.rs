//! Schedules of a model run on this machine's processor, compared with the model in program order and as one piece.

use edgecut_agent::results::{Difference, Tolerance};
use edgecut_engine::{Engine, EngineError, Executable, Sample, TractEngine};
use edgecut_graph::{
    Graph, OperatorId, TensorData, TensorId,
    units::{Bytes, Micros},
};
use edgecut_memory::model::{GroupedGraph, Schedule, ScheduleFront, UnrolledGraph, feasible::smallest_feasible};

/// Timed runs of each variant; variants take turns.
const RUNS: usize = 7;
/// Schedules that are run at most to find the smallest one that keeps a slowdown.
const MAX_SCHEDULES_RUN: usize = 10;

/// The content of a tensor of a graph: the model's, or one that computes the same.
pub type Content<'a> = dyn Fn(&Graph, TensorId) -> Result<TensorData, EngineError> + 'a;

/// A run of a schedule, and of the model for comparison.
pub struct ScheduleRun {
    pub schedule: RunCost,
    /// The model's groups in program order.
    pub program_order: RunCost,
    /// The model as one piece, which the engine orders itself.
    pub one_piece: RunCost,
    /// Of the schedule's results from the model's.
    pub difference: Difference,
}

/// Memory and time of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunCost {
    /// Peak bytes of live tensors.
    pub arena: Bytes,
    /// The same with the engine's workspace.
    pub peak: Bytes,
    /// The minimum of several runs.
    pub time: Micros,
    pub parameters: Bytes,
}

/// Why a schedule's run is not what was predicted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleRunError {
    #[error("the schedule's results differ from the model's: {0}")]
    Results(Difference),
    #[error("the schedule took {measured} of memory, {predicted} were predicted")]
    Memory { measured: Bytes, predicted: Bytes },
}

/// A loaded model that schedules of it are compared with.
pub struct ScheduleBench<'a> {
    content: &'a Content<'a>,
    engine: TractEngine,
    inputs: Vec<TensorData>,
    expected: Vec<TensorData>,
    tolerance: Tolerance,
    program_order: Loaded,
    one_piece: Loaded,
}

struct Loaded {
    executable: Box<dyn Executable>,
    cost: RunCost,
}

impl<'a> ScheduleBench<'a> {
    /// Loads the model in its groups and as one piece, and runs both once.
    ///
    /// # Errors
    /// If the engine cannot compute the model, or a content does not fit.
    pub fn new(model: &GroupedGraph, content: &'a Content<'a>) -> Result<ScheduleBench<'a>, EngineError> {
        let engine = TractEngine::new(1)?;
        let inputs = model.graph.inputs().map(|id| content(&model.graph, id)).collect::<Result<Vec<_>, _>>()?;
        let groups: Vec<Vec<OperatorId>> = model.groups.iter().map(|group| group.operators.clone()).collect();
        let all: Vec<OperatorId> = model.graph.operators().map(|(id, _)| id).collect();
        let mut one_piece = Loaded::new(&engine, content, &model.graph, &[all])?;
        let mut program_order = Loaded::new(&engine, content, &model.graph, &groups)?;
        let expected = one_piece.measure(&inputs)?;
        program_order.measure(&inputs)?;
        let tolerance = Tolerance::of(&model.graph);
        Ok(ScheduleBench { content, engine, inputs, expected, tolerance, program_order, one_piece })
    }

    /// Runs a schedule, alternating with the model.
    ///
    /// # Errors
    /// If the engine fails.
    pub fn run(&mut self, scheduled: &UnrolledGraph) -> Result<ScheduleRun, EngineError> {
        let mut schedule = Loaded::new(&self.engine, self.content, &scheduled.graph, &scheduled.steps)?;
        let found = schedule.measure(&self.inputs)?;
        // Every schedule is compared with as many runs of the model, made at the same time.
        (self.one_piece.cost.time, self.program_order.cost.time) = (Micros(f64::INFINITY), Micros(f64::INFINITY));
        for _ in 0..RUNS {
            self.one_piece.time(&self.inputs)?;
            self.program_order.time(&self.inputs)?;
            schedule.time(&self.inputs)?;
        }
        Ok(ScheduleRun {
            schedule: schedule.cost,
            program_order: self.program_order.cost,
            one_piece: self.one_piece.cost,
            difference: Difference::between(&found, &self.expected, self.tolerance),
        })
    }

    /// Runs schedules of the front, beginning with `first`, until the smallest one is known whose measured slowdown is
    /// at most `allowed`; if none that was run is, the fastest of them. Each run is reported to `progress`.
    ///
    /// # Errors
    /// If the engine fails.
    pub(crate) fn smallest_within<'f>(
        &mut self,
        fitted: &'f ScheduleFront,
        first: Schedule<'f>,
        allowed: f64,
        progress: &dyn Fn(&Schedule<'_>, &ScheduleRun),
    ) -> Result<(Schedule<'f>, ScheduleRun), EngineError> {
        let front = fitted.front();
        let peaks: Vec<Bytes> = front.iter().map(|schedule| schedule.peak).collect();
        let mut runs: Vec<(usize, ScheduleRun)> = Vec::new();
        let begin = peaks.partition_point(|peak| *peak < first.peak);
        let found = smallest_feasible(&peaks, begin, MAX_SCHEDULES_RUN, |at| {
            let run = self.run(&front[at].graph())?;
            let is_kept = run.slowdown() <= allowed;
            progress(&front[at], &run);
            runs.push((at, run));
            Ok::<bool, EngineError>(is_kept)
        })?;
        let slower = |a: &(usize, ScheduleRun), b: &(usize, ScheduleRun)| a.1.slowdown().total_cmp(&b.1.slowdown());
        let chosen = runs.iter().position(|(at, _)| found == Some(*at));
        let fastest = || runs.iter().enumerate().min_by(|a, b| slower(a.1, b.1)).map(|(index, _)| index);
        match chosen.or_else(fastest) {
            Some(index) => {
                let (at, run) = runs.swap_remove(index);
                Ok((front[at], run))
            }
            None => Ok((first, self.run(&first.graph())?)),
        }
    }
}

impl Loaded {
    fn new(
        engine: &TractEngine,
        content: &Content<'_>,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
    ) -> Result<Loaded, EngineError> {
        let executable = engine.load_steps(graph, steps, &|id| content(graph, id))?;
        let parameters = executable.parameter_bytes();
        let cost = RunCost { arena: Bytes::ZERO, peak: Bytes::ZERO, time: Micros(f64::INFINITY), parameters };
        Ok(Loaded { executable, cost })
    }

    fn time(&mut self, inputs: &[TensorData]) -> Result<(), EngineError> {
        let (_, sample) = self.executable.run_measured(inputs.to_vec())?;
        self.cost.time = Micros(self.cost.time.0.min(sample.wall.0));
        Ok(())
    }

    /// Runs step by step and records the memory of each.
    fn measure(&mut self, inputs: &[TensorData]) -> Result<Vec<TensorData>, EngineError> {
        let cost = &mut self.cost;
        let mut each = |_: usize, sample: Sample| {
            cost.arena = cost.arena.max(sample.tensors);
            cost.peak = cost.peak.max(sample.peak);
        };
        self.executable.run_in_steps(inputs.to_vec(), &mut each)
    }
}

impl ScheduleRun {
    /// The schedule's time as a multiple of that of the model's groups in program order.
    pub fn slowdown(&self) -> f64 {
        self.schedule.time.0 / self.program_order.time.0
    }

    /// Checks the run of a schedule that was predicted to fit in `arena`.
    ///
    /// # Errors
    /// If its results are not the model's, or it took more memory.
    pub fn check(&self, arena: Bytes) -> Result<(), ScheduleRunError> {
        if !self.difference.is_tolerable() {
            return Err(ScheduleRunError::Results(self.difference));
        }
        match self.schedule.arena {
            measured if measured > arena => Err(ScheduleRunError::Memory { measured, predicted: arena }),
            _ => Ok(()),
        }
    }
}
