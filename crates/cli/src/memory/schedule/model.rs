//! Schedules of a model, with their arenas, and the one that is chosen run on this machine.

use edgecut_graph::{Graph, TensorId};
use edgecut_memory::{
    check,
    model::{GroupedGraph, Model, Schedule as Found, ScheduleFront, schedule_arena, schedule_model},
    roofline::Roofline,
    target::Target,
};
use edgecut_session::{
    error::Message,
    model::contents::{Contents, engine_error},
    run::schedule_bench::{ScheduleBench, ScheduleRun},
};

use super::{
    flags::Schedule,
    notes::notes,
    offload::{self, nearest},
    rows::{self, Row, RunTable},
};
use crate::{
    Failure, Outcome,
    format::{self, Format},
    memory::{effort, subject::Subject},
    source_file,
    stdout::print_line,
};

/// The slowdown that `--run` allows without a target.
const SLOWDOWN: f64 = 1.1;
/// Millions of placements that are tried for the arena if `--effort` is not given.
const ARENA_EFFORT: u64 = 30;

/// Searches and prints schedules, and with `--run` runs the chosen one.
pub(super) fn run(arguments: &Schedule, subject: &Subject) -> Outcome {
    let grouped = subject.problem.grouped();
    let neighbour = arguments.execution.cluster.as_deref().map(nearest).transpose()?;
    let host = neighbour.as_ref().map(|(_, link)| *link);
    let roofline = Roofline::default();
    let model = Model { grouped: &grouped, costs: &roofline, host };
    let options = arguments.options(arguments.search.seed, grouped.groups.len());
    let fitted = schedule_model(&model, &options).map_err(Failure::bad_input)?;
    let default = arguments.execution.run.then_some(Target::Slowdown(SLOWDOWN));
    let Some(target) = arguments.target().or(default) else { return front(arguments, subject, &fitted) };
    let Some(best) = fitted.best(target) else {
        let (found, bound) = (fitted.smallest_peak(), fitted.peak_bound);
        let text =
            format!("no schedule keeps the target: the smallest one found needs {found}, the lower bound is {bound}");
        return Err(Failure::NoPlan(Message::from(text)));
    };
    match (arguments.execution.run, &neighbour) {
        (true, Some((neighbour, _))) => offload::run(arguments, subject, &fitted, target, neighbour),
        _ => chosen(arguments, subject, &grouped, &fitted, best, target),
    }
}

/// All schedules that no other one beats.
fn front(arguments: &Schedule, subject: &Subject, fitted: &ScheduleFront) -> Outcome {
    let rows: Vec<Row> = fitted.front().iter().map(|schedule| Row::of(fitted, schedule)).collect();
    rows::print(arguments.format, &rows, &notes(arguments, subject, fitted))?;
    arguments.output.as_deref().map_or(Ok(()), |path| source_file::write(path, &format::to_csv(&rows)?))
}

/// The schedule that meets the target, with its arena; with `--run` it is run on this machine.
fn chosen<'a>(
    arguments: &Schedule,
    subject: &Subject,
    grouped: &GroupedGraph,
    fitted: &'a ScheduleFront,
    mut best: Found<'a>,
    target: Target,
) -> Outcome {
    let mut measured = None;
    if arguments.execution.run {
        let whole = &subject.problem.graph;
        let params = subject.params_of_run()?;
        let contents = Contents::new(whole, subject.given.clone(), &params)?.within_ranges_of(whole);
        let content = |graph: &Graph, id: TensorId| contents.of_tensor(graph.tensor(id));
        let mut bench = ScheduleBench::new(grouped, &content).map_err(engine_error)?;
        let (kept, run) = run_here(&mut bench, fitted, best, target)?;
        (best, measured) = (kept, Some(run));
    }
    let scheduled = best.graph();
    check::values::values(&best.variant.grouped.graph, &scheduled.graph).map_err(Failure::failed)?;
    let (align, steps) = (arguments.flags.align(), effort::steps(arguments.search.effort, ARENA_EFFORT));
    let arena = schedule_arena::arena(&best, align, steps).map_err(Failure::failed)?.height;
    let tvm_arena = schedule_arena::tvm_arena(grouped, align).map_err(Failure::bad_input)?;
    let mut row = Row::detailed(fitted, &best);
    (row.arena_bytes, row.tvm_arena_bytes) = (Some(arena), Some(tvm_arena));
    let notes = notes(arguments, subject, fitted);
    let write =
        || arguments.output.as_deref().map_or(Ok(()), |path| source_file::write(path, scheduled.to_csv().as_bytes()));
    let Some(run) = measured else {
        rows::print(arguments.format, &[row], &notes)?;
        return write();
    };
    row.add_run(&run);
    rows::print(arguments.format, &[row], &notes)?;
    if arguments.format == Format::Table {
        print_line!("{}", RunTable(&run));
    }
    write()?;
    run.check(arena).map_err(Failure::failed)
}

/// Runs the schedule; under a slowdown those around it, and keeps the smallest one that is as fast.
fn run_here<'a>(
    bench: &mut ScheduleBench<'_>,
    fitted: &'a ScheduleFront,
    first: Found<'a>,
    target: Target,
) -> Result<(Found<'a>, ScheduleRun), Failure> {
    let progress = |schedule: &Found<'_>, run: &ScheduleRun| {
        let (peak, slowdown) = (schedule.peak, run.slowdown());
        eprintln!("ran a schedule of {peak} in {slowdown:.3} times the time of program order");
    };
    let found = match target {
        Target::Limit(_) => bench.run(&first.graph()).map(|run| (first, run)),
        Target::Slowdown(allowed) => bench.smallest_within(fitted, first, allowed, &progress),
    };
    found.map_err(engine_error)
}
