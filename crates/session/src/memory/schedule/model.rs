//! Schedules of a model, with their arenas, and the one that is chosen run on this machine.

use edgecut_graph::{Graph, TensorId, units::Bytes};
use edgecut_memory::{
    check,
    model::{GroupedGraph, Model, Schedule, ScheduleFront, schedule_arena, schedule_model},
    roofline::Roofline,
    target::Target,
};

use super::{
    offload::{self, OffloadExecution},
    options::ScheduleOptions,
    row::ScheduleRow,
};
pub use crate::run::schedule_bench::{RunCost, ScheduleRun};
use crate::{
    Error, Events,
    memory::{
        effort::steps,
        subject::{MemorySubject, TimesSource},
    },
    model::contents::{Contents, engine_error},
    run::schedule_bench::ScheduleBench,
};

/// The slowdown that a run allows without a target.
const SLOWDOWN: f64 = 1.1;
/// Default number of placements that are tried for the arena, in millions.
const ARENA_EFFORT: u64 = 30;

/// Schedules of a model: the one that was chosen by a target, or all that no other one beats in peak and time.
pub struct ModelSchedules {
    pub rows: Vec<ScheduleRow>,
    /// Lower bound of the peak over all schedules.
    pub bound_peak_bytes: Bytes,
    pub times: TimesSource,
    /// The steps of the chosen schedule as CSV.
    pub csv: Option<String>,
    pub execution: Option<Execution>,
}

/// A run of the chosen schedule.
pub enum Execution {
    /// On this machine. The schedule was predicted to fit in `arena`.
    Here { run: ScheduleRun, arena: Bytes },
    /// On the agents of two servers.
    OnAgents(Box<OffloadExecution>),
}

impl ModelSchedules {
    /// Checks the run of the chosen schedule, if it ran.
    ///
    /// # Errors
    /// If its results are not the model's, or it took more memory than was predicted.
    pub fn check(&self) -> Result<(), Error> {
        match &self.execution {
            None => Ok(()),
            Some(Execution::Here { run, arena }) => run.check(*arena).map_err(Error::failed),
            Some(Execution::OnAgents(execution)) => execution.check(),
        }
    }
}

/// Searches schedules, and runs the chosen one if the options say so.
pub(super) fn schedules(
    subject: &MemorySubject,
    options: &ScheduleOptions,
    events: &Events,
) -> Result<ModelSchedules, Error> {
    let grouped = subject.problem.grouped();
    let neighbour = match &options.cluster {
        Some(path) => Some((path.as_path(), offload::nearest(path, events)?)),
        None => None,
    };
    let host = neighbour.as_ref().map(|(_, (_, link))| *link);
    let roofline = Roofline::default();
    let model = Model { grouped: &grouped, costs: &roofline, host };
    let fitted = schedule_model(&model, &options.search().of_graph(grouped.groups.len())).map_err(Error::bad_input)?;
    let found = ModelSchedules {
        rows: Vec::new(),
        bound_peak_bytes: fitted.peak_bound,
        times: subject.times.clone(),
        csv: None,
        execution: None,
    };
    let default = options.run.then_some(Target::Slowdown(SLOWDOWN));
    let Some(target) = options.target().or(default) else {
        let rows = fitted.front().iter().map(|schedule| ScheduleRow::of(&fitted, schedule)).collect();
        return Ok(ModelSchedules { rows, ..found });
    };
    let Some(best) = fitted.best(target) else {
        let (found, bound) = (fitted.smallest_peak(), fitted.peak_bound);
        let text =
            format!("no schedule keeps the target: the smallest one found needs {found}, the lower bound is {bound}");
        return Err(Error::NoPlan(text.into()));
    };
    let (row, csv, execution) = match &neighbour {
        Some((cluster, (neighbour, _))) if options.run => {
            let (row, csv, execution) =
                offload::run(subject, &fitted, target, options.seed, (cluster, neighbour), events)?;
            (row, csv, Some(Execution::OnAgents(Box::new(execution))))
        }
        _ => chosen(subject, &grouped, &fitted, (best, target), options, events)?,
    };
    Ok(ModelSchedules { rows: vec![row], csv: Some(csv), execution, ..found })
}

/// The schedule that meets the target, with its steps and its arena, and its run on this machine if the options say so.
fn chosen<'a>(
    subject: &MemorySubject,
    grouped: &GroupedGraph,
    fitted: &'a ScheduleFront,
    (mut best, target): (Schedule<'a>, Target),
    options: &ScheduleOptions,
    events: &Events,
) -> Result<(ScheduleRow, String, Option<Execution>), Error> {
    let mut measured = None;
    if options.run {
        let whole = &subject.problem.graph;
        let params = subject.params_of_run()?;
        let contents = Contents::new(whole, subject.given.clone(), &params)?.within_ranges_of(whole);
        let content = |graph: &Graph, id: TensorId| contents.of_tensor(graph.tensor(id));
        let mut bench = ScheduleBench::new(grouped, &content).map_err(engine_error)?;
        let (kept, run) = run_here(&mut bench, fitted, best, target, events)?;
        (best, measured) = (kept, Some(run));
    }
    let scheduled = best.graph();
    check::values::values(&best.variant.grouped.graph, &scheduled.graph).map_err(Error::failed)?;
    let align = options.subject.align();
    let arena = schedule_arena::arena(&best, align, steps(options.effort, ARENA_EFFORT)).map_err(Error::failed)?.height;
    let tvm_arena = schedule_arena::tvm_arena(grouped, align).map_err(Error::bad_input)?;
    let mut row = ScheduleRow::detailed(fitted, &best);
    (row.arena_bytes, row.tvm_arena_bytes) = (Some(arena), Some(tvm_arena));
    if let Some(run) = &measured {
        row.add_run(run);
    }
    Ok((row, scheduled.to_csv(), measured.map(|run| Execution::Here { run, arena })))
}

/// Runs the schedule; under a slowdown those around it, and keeps the smallest one that is as fast.
fn run_here<'a>(
    bench: &mut ScheduleBench<'_>,
    fitted: &'a ScheduleFront,
    first: Schedule<'a>,
    target: Target,
    events: &Events,
) -> Result<(Schedule<'a>, ScheduleRun), Error> {
    let progress = |schedule: &Schedule<'_>, run: &ScheduleRun| {
        let (peak, slowdown) = (schedule.peak, run.slowdown());
        events.notice(format_args!("ran a schedule of {peak} in {slowdown:.3} times the time of program order"));
    };
    let found = match target {
        Target::Limit(_) => bench.run(&first.graph()).map(|run| (first, run)),
        Target::Slowdown(allowed) => bench.smallest_within(fitted, first, allowed, &progress),
    };
    found.map_err(engine_error)
}
