//! `edgecut memory MODEL --run`: a schedule on this machine's processor beside the model as it is.

use std::fmt;

use super::subject::Subject;
use crate::{
    cli::{
        Failure,
        contents::{Contents, Given, engine_failure},
    },
    engine::{CpuEngine, Engine, Executable, Sample},
    graph::{Graph, OperatorId, TensorData},
    memory::model::{Scheduled, Stepped},
    run::Difference,
    units::{Bytes, Micros},
};

/// Runs that are timed, schedule and model in turn.
const RUNS: usize = 7;
const ONE_PIECE: &str = "as one piece";

/// What running a schedule came to.
pub struct Measured {
    pub schedule: Cost,
    /// The model's groups in program order.
    pub plain: Cost,
    /// The model as one piece, which the engine orders itself.
    pub whole: Cost,
    /// Of the schedule's results from the model's.
    pub difference: Difference,
}

/// What something took.
#[derive(Clone, Copy)]
pub struct Cost {
    /// Most bytes of tensors at one time.
    pub arena: Bytes,
    /// The same with what the engine takes while it computes.
    pub peak: Bytes,
    /// The least of several runs.
    pub time: Micros,
    /// What is held throughout.
    pub parameters: Bytes,
}

struct Loaded {
    executable: Box<dyn Executable>,
    cost: Cost,
}

/// A model that is loaded, to compare schedules of it with.
pub struct Bench<'a> {
    subject: &'a Subject,
    engine: CpuEngine,
    inputs: Vec<TensorData>,
    wanted: Vec<TensorData>,
    plain: Loaded,
    whole: Loaded,
}

impl<'a> Bench<'a> {
    /// Loads the model in its groups and as one piece, and runs both once.
    pub fn new(subject: &'a Subject, model: &Stepped) -> Result<Bench<'a>, Failure> {
        let engine = CpuEngine::new(1).map_err(Failure::failed)?;
        let contents = Contents::new(&subject.graph, Given::default(), &subject.params)?;
        let inputs = contents.inputs().map_err(engine_failure)?;
        let groups: Vec<Vec<OperatorId>> = model.groups.iter().map(|group| group.operators.clone()).collect();
        let all: Vec<OperatorId> = model.graph.operators().map(|(id, _)| id).collect();
        let mut whole = Loaded::of(&engine, subject, &model.graph, &[all])?;
        let mut plain = Loaded::of(&engine, subject, &model.graph, &groups)?;
        let wanted = whole.measure(&inputs)?;
        plain.measure(&inputs)?;
        Ok(Bench { subject, engine, inputs, wanted, plain, whole })
    }

    /// Runs a schedule, in turn with the model.
    pub fn run(&mut self, scheduled: &Scheduled) -> Result<Measured, Failure> {
        let mut schedule = Loaded::of(&self.engine, self.subject, &scheduled.graph, &scheduled.steps)?;
        let found = schedule.measure(&self.inputs)?;
        // Every schedule is compared with runs beside its own, and with as many.
        (self.whole.cost.time, self.plain.cost.time) = (Micros(f64::INFINITY), Micros(f64::INFINITY));
        for _ in 0..RUNS {
            self.whole.time(&self.inputs)?;
            self.plain.time(&self.inputs)?;
            schedule.time(&self.inputs)?;
        }
        let difference = Difference::between(&found, &self.wanted);
        Ok(Measured { schedule: schedule.cost, plain: self.plain.cost, whole: self.whole.cost, difference })
    }
}

impl Loaded {
    fn of(engine: &CpuEngine, subject: &Subject, graph: &Graph, steps: &[Vec<OperatorId>]) -> Result<Loaded, Failure> {
        let contents = Contents::new(graph, Given::default(), &subject.params)?;
        let executable = engine.load_steps(graph, steps, &|id| contents.of(id)).map_err(engine_failure)?;
        let parameters = executable.parameter_bytes();
        let cost = Cost { arena: Bytes::ZERO, peak: Bytes::ZERO, time: Micros(f64::INFINITY), parameters };
        Ok(Loaded { executable, cost })
    }

    fn time(&mut self, inputs: &[TensorData]) -> Result<(), Failure> {
        let (_, sample) = self.executable.run_measured(inputs).map_err(engine_failure)?;
        self.cost.time = Micros(self.cost.time.0.min(sample.wall.0));
        Ok(())
    }

    /// Runs step by step and takes the memory of each.
    fn measure(&mut self, inputs: &[TensorData]) -> Result<Vec<TensorData>, Failure> {
        let cost = &mut self.cost;
        let mut each = |_: usize, sample: Sample| {
            cost.arena = cost.arena.max(sample.tensors);
            cost.peak = cost.peak.max(sample.peak);
        };
        self.executable.run_in_steps(inputs.to_vec(), &mut each).map_err(engine_failure)
    }
}

impl Measured {
    /// The schedule's time, in times of the model's groups in program order.
    pub fn slowdown(&self) -> f64 {
        self.schedule.time.0 / self.plain.time.0
    }

    /// What is wrong with a run of a schedule that was to fit in `arena`.
    pub fn flaw(&self, arena: Bytes) -> Option<String> {
        if !self.difference.is_tolerable() {
            return Some(format!("the schedule's results are not the model's: {}", self.difference));
        }
        let measured = self.schedule.arena;
        (measured > arena).then(|| format!("the schedule took {measured} when it ran, {arena} were predicted"))
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["measured", "tensors", "with scratch", "parameters", "time"];
        writeln!(f, "{:<16} {:>12} {:>14} {:>12} {:>12}", head[0], head[1], head[2], head[3], head[4])?;
        let mut row = |name: &str, cost: &Cost| {
            let slower = 100.0 * (cost.time.0 / self.plain.time.0 - 1.0);
            let [mut arena, peak, parameters] = [cost.arena, cost.peak, cost.parameters].map(|bytes| bytes.to_string());
            if name == ONE_PIECE {
                // Tensors inside the piece are the engine's affair.
                arena = "-".to_string();
            }
            let time = cost.time.to_string();
            writeln!(f, "{name:<16} {arena:>12} {peak:>14} {parameters:>12} {time:>12} {slower:>+8.2}%")
        };
        row("schedule", &self.schedule)?;
        row("program order", &self.plain)?;
        row(ONE_PIECE, &self.whole)?;
        write!(f, "results          {}", self.difference)
    }
}
