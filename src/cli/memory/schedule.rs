//! `edgecut memory MODEL --limit | --slowdown | --pareto`: schedules that need less memory, with their arenas.

use miette::Report;
use serde::Serialize;

use super::{
    Memory, away,
    execute::{Bench, Measured},
    neighbour,
    subject::{InProportion, Subject},
};
use crate::{
    cli::{
        Failure, Outcome, file,
        format::{self, Format},
    },
    memory::{
        Options, Packing, bound, check,
        fit::{self, Step},
        lower::buffers,
        model::{self, Fitted, Model, Schedule, Scheduled, Stepped, kept::smallest},
        pack,
        program::Program,
        tvm,
        workload::Target,
    },
    units::{Bytes, Micros},
};

/// Schedules that are run at most to find the smallest one that keeps a slowdown.
const TRIES: usize = 10;

/// One schedule of the front; its arena and what follows only where it was asked for by a target.
#[derive(Serialize, Default)]
pub(super) struct Point {
    pub(super) peak_bytes: Bytes,
    pub(super) time_us: Micros,
    pub(super) peak_ratio: f64,
    pub(super) time_ratio: f64,
    pub(super) arena_bytes: Option<Bytes>,
    pub(super) repeated: Option<usize>,
    /// Copies to a neighbour.
    pub(super) stored: Option<usize>,
    /// Stretches that are computed in parts, and the parts of all of them.
    pub(super) stretches: Option<usize>,
    pub(super) parts: Option<u64>,
    /// TVM's default arena for program order.
    pub(super) tvm_arena_bytes: Option<Bytes>,
    pub(super) run_arena_bytes: Option<Bytes>,
    /// Tensors and what the engine takes while it computes.
    pub(super) run_peak_bytes: Option<Bytes>,
    pub(super) run_time_us: Option<Micros>,
    pub(super) run_parameter_bytes: Option<Bytes>,
    /// The same of the model's groups in program order.
    pub(super) plain_arena_bytes: Option<Bytes>,
    pub(super) plain_peak_bytes: Option<Bytes>,
    pub(super) plain_time_us: Option<Micros>,
    pub(super) plain_parameter_bytes: Option<Bytes>,
    /// Elements of the results that are not the model's.
    pub(super) wrong: Option<u64>,
    /// Of the neighbour's, parameters not among them.
    pub(super) neighbour_peak_bytes: Option<Bytes>,
}

/// Searches, prints, and runs what is chosen if that is wanted.
pub fn run(memory: &Memory, subject: &Subject) -> Outcome {
    let stepped = Stepped { graph: subject.graph.clone(), groups: subject.groups.clone() };
    let options = fit::Options { seed: memory.seed, budget: memory.effort(70), cut_off: None };
    let neighbour = memory.cluster.as_deref().map(neighbour::nearest).transpose()?;
    let host = neighbour.as_ref().map(|(_, link)| *link);
    let model = Model { stepped: &stepped, costs: &InProportion, host };
    let fitted = model::fit(&model, &options).map_err(Failure::bad_input)?;
    let front = fitted.front();
    let Some(target) = memory.target().or(memory.run.then_some(Target::Slowdown(1.1))) else {
        let points: Vec<Point> = front.iter().map(|schedule| point(&fitted, schedule)).collect();
        if let Some(path) = &memory.output {
            file::write(path, &format::to_csv(&points)?)?;
        }
        return print(memory, subject, &points, &fitted);
    };
    let Some(mut best) = chosen(&fitted, target) else {
        let smallest = front.first().map_or(fitted.original.0, |schedule| schedule.peak);
        let text = format!(
            "no schedule keeps the target: the smallest one found needs {}, the lower bound is {}",
            Bytes(smallest),
            Bytes(fitted.least_peak)
        );
        return Err(Failure::NoPlan(Report::msg(text)));
    };
    if let (true, Some((neighbour, _))) = (memory.run, &neighbour) {
        return away::run(memory, subject, &fitted, target, neighbour);
    }
    let mut measured = None;
    if memory.run {
        let (kept, run) = kept(&fitted, best, target, &mut Bench::new(subject, &stepped)?)?;
        (best, measured) = (kept, Some(run));
    }
    let scheduled = best.graph();
    check::values::values(&best.variant.stepped.graph, &scheduled.graph).map_err(Failure::failed)?;
    let steps = best.steps();
    let program = &best.variant.lowered.program;
    let packing = packed(memory, program, &steps, best.peak)?;
    let mut row = detailed(&fitted, &best);
    row.arena_bytes = Some(packing.height);
    row.tvm_arena_bytes = Some(tvm_arena(memory, &stepped)?);
    if let Some(path) = &memory.output {
        file::write(path, lines(&scheduled).as_bytes())?;
    }
    let Some(measured) = measured else { return print(memory, subject, &[row], &fitted) };
    row.ran(&measured);
    print(memory, subject, &[row], &fitted)?;
    if memory.format == Format::Table {
        println!("{measured}");
    }
    measured.flaw(packing.height).map_or(Ok(()), |flaw| Err(Failure::Failed(Report::msg(flaw))))
}

/// The best schedule that keeps a target by prediction.
pub(super) fn chosen(fitted: &Fitted, target: Target) -> Option<Schedule<'_>> {
    let (original, time) = fitted.original;
    match target {
        Target::Limit(limit) => fitted.within(limit.of(Bytes(original)).0),
        Target::Slowdown(factor) => fitted.before(time * factor * (1.0 + 1e-12)),
    }
}

/// The smallest schedule that keeps a slowdown when it runs, beginning with the one that is predicted to; if none that
/// was tried does, the fastest of them. Under a limit the first one.
fn kept<'a>(
    fitted: &'a Fitted,
    first: Schedule<'a>,
    target: Target,
    bench: &mut Bench<'_>,
) -> Result<(Schedule<'a>, Measured), Failure> {
    let Target::Slowdown(allowed) = target else { return Ok((first, bench.run(&first.graph())?)) };
    let front = fitted.front();
    let peaks: Vec<u64> = front.iter().map(|schedule| schedule.peak).collect();
    let mut runs: Vec<(usize, Measured)> = Vec::new();
    let begin = peaks.partition_point(|peak| *peak < first.peak);
    let found = smallest(&peaks, begin, TRIES, |at| {
        let run = bench.run(&front[at].graph())?;
        let slowdown = run.slowdown();
        eprintln!("ran a schedule of {} in {slowdown:.3} times the time of program order", Bytes(peaks[at]));
        runs.push((at, run));
        Ok::<bool, Failure>(slowdown <= allowed)
    })?;
    let slower = |a: &(usize, Measured), b: &(usize, Measured)| a.1.slowdown().total_cmp(&b.1.slowdown());
    let chosen = runs.iter().position(|(at, _)| found == Some(*at));
    let fastest = || runs.iter().enumerate().min_by(|a, b| slower(a.1, b.1)).map(|(index, _)| index);
    match chosen.or_else(fastest) {
        Some(index) => {
            let (at, run) = runs.swap_remove(index);
            Ok((front[at], run))
        }
        None => Ok((first, bench.run(&first.graph())?)),
    }
}

/// The steps of a schedule as a table.
pub(super) fn lines(scheduled: &Scheduled) -> String {
    let mut lines = String::from("step,operators,results\n");
    for (number, step) in scheduled.steps.iter().enumerate() {
        let operators = || step.iter().map(|id| scheduled.graph.operator(*id));
        let names: Vec<&str> = operators().map(|operator| operator.name.as_str()).collect();
        let last = operators().next_back().into_iter().flat_map(|operator| &operator.outputs);
        let results: Vec<&str> = last.map(|t| scheduled.graph.tensor(*t).name.as_str()).collect();
        lines += &format!("{number},{},{}\n", names.join("+"), results.join(" "));
    }
    lines
}

impl Point {
    fn ran(&mut self, measured: &Measured) {
        let Measured { schedule, plain, .. } = measured;
        (self.run_arena_bytes, self.run_peak_bytes) = (Some(schedule.arena), Some(schedule.peak));
        (self.run_time_us, self.run_parameter_bytes) = (Some(schedule.time), Some(schedule.parameters));
        (self.plain_arena_bytes, self.plain_peak_bytes) = (Some(plain.arena), Some(plain.peak));
        (self.plain_time_us, self.plain_parameter_bytes) = (Some(plain.time), Some(plain.parameters));
        self.wrong = Some(measured.difference.wrong);
    }
}

fn point(fitted: &Fitted, schedule: &Schedule<'_>) -> Point {
    let (peak, time) = fitted.original;
    Point {
        peak_bytes: Bytes(schedule.peak),
        time_us: Micros(schedule.time),
        peak_ratio: schedule.peak as f64 / peak.max(1) as f64,
        time_ratio: schedule.time / time,
        ..Point::default()
    }
}

/// The same with what the schedule does.
pub(super) fn detailed(fitted: &Fitted, best: &Schedule<'_>) -> Point {
    let steps = best.steps();
    let copies = |wanted: fn(&Step) -> bool| steps.iter().filter(|step| wanted(step)).count();
    let operators = best.variant.lowered.program.operators.len();
    Point {
        stored: Some(copies(|step| matches!(step, Step::Store(_)))),
        repeated: Some(copies(|step| matches!(step, Step::Run(_))).saturating_sub(operators)),
        stretches: Some(best.variant.stretches.len()),
        parts: Some(best.variant.stretches.iter().map(|stretch| stretch.parts).sum()),
        ..point(fitted, best)
    }
}

/// The arena of a schedule, checked: its buffers must peak where the search said.
fn packed(memory: &Memory, program: &Program, steps: &[Step], peak: u64) -> Result<Packing, Failure> {
    let held = buffers(program, steps, memory.align);
    let found = bound::peak(&held).bytes + Bytes(program.resident);
    if found.0 != peak {
        let text = format!("the schedule's buffers take {found} at one time, {} were predicted", Bytes(peak));
        return Err(Failure::Failed(Report::msg(text)));
    }
    let options = Options { capacity: None, effort: memory.effort(30) };
    let packing = pack(&held, &options).map_err(Failure::bad_input)?;
    check::packing(&held, &packing).map_err(Failure::failed)?;
    Ok(packing)
}

/// TVM's default arena for the groups in program order, nothing overwritten.
fn tvm_arena(memory: &Memory, stepped: &Stepped) -> Result<Bytes, Failure> {
    let mut plain = stepped.clone();
    plain.groups.iter_mut().for_each(|group| (group.in_place, group.workspace) = (false, Bytes::ZERO));
    let program = plain.lower().map_err(Failure::bad_input)?.program;
    let steps: Vec<Step> = (0..program.operators.len() as u32).map(Step::Run).collect();
    Ok(tvm::greedy_by_size(&buffers(&program, &steps, memory.align)).height)
}

pub(super) fn print(memory: &Memory, subject: &Subject, points: &[Point], fitted: &Fitted) -> Outcome {
    match memory.format {
        Format::Csv => return format::print_csv(points),
        Format::Json => return format::print_json(&points),
        Format::Table => {}
    }
    println!("{:>12} {:>7} {:>12} {:>9} {:>12}", "peak", "", "time", "", "arena");
    for point in points {
        println!(
            "{:>12} {:>6.1}% {:>12} {:>+8.2}% {:>12}",
            point.peak_bytes.to_string(),
            100.0 * point.peak_ratio,
            point.time_us.to_string(),
            100.0 * (point.time_ratio - 1.0),
            point.arena_bytes.map_or(String::new(), |bytes| bytes.to_string())
        );
    }
    println!("lower bound of the peak: {}; times {}", Bytes(fitted.least_peak), subject.timed);
    if memory.cluster.is_some() && !memory.run {
        println!("copies to a neighbour are simulated at the link's cost and checked; --run runs them on the agents");
    }
    if let [
        Point {
            repeated: Some(repeated), stored: Some(stored), stretches: Some(stretches), parts: Some(parts), ..
        },
    ] = points
    {
        println!("{repeated} groups run again, {stored} copies to a neighbour; {stretches} stretches in {parts} parts");
    }
    if let [Point { tvm_arena_bytes: Some(arena), .. }] = points {
        println!("program order in TVM's default arena: {arena}");
    }
    Ok(())
}
