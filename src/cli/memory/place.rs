//! `edgecut memory MODEL`: the arena in program order and in the order of least peak, and schedules that need less.

use std::path::Path;

use miette::Report;
use serde::Serialize;

use super::{Memory, subject::Subject};
use crate::{
    cli::{
        Failure, Outcome, file,
        format::{self, Format},
    },
    graph::OperatorId,
    memory::{
        self, Options, check,
        fit::{self, Front},
        g10,
        lower::{Overwriting, buffers, lower},
        pack,
        place::{self, Placements},
        trace::trace,
        workload::{Limit, Target},
    },
    report::memory::{aidge, charts, layout::Layout, map, page, perfetto, text},
    units::{Bytes, Micros},
};

/// What is told of a placement.
#[derive(Serialize)]
struct Summary {
    model: String,
    operators: usize,
    flops: u64,
    parameter_bytes: Bytes,
    program_order_peak_bytes: Bytes,
    program_order_arena_bytes: Bytes,
    peak_bytes: Bytes,
    arena_bytes: Bytes,
    /// No arena of that order is smaller.
    bound_arena_bytes: Bytes,
    /// No order has a lower peak.
    bound_peak_bytes: Bytes,
    /// Of the arena to the lower of both bounds.
    gap: f64,
    times: String,
}

/// One tensor or workspace of the placement.
#[derive(Serialize)]
struct Row<'a> {
    buffer: &'a str,
    kind: &'static str,
    bytes: Bytes,
    offset: Bytes,
    birth: u64,
    death: u64,
}

/// One schedule of the front, with its arena.
#[derive(Serialize)]
struct Point {
    peak_bytes: Bytes,
    time_us: Micros,
    peak_ratio: f64,
    time_ratio: f64,
    arena_bytes: Option<Bytes>,
    repeated: Option<usize>,
}

pub fn run(memory: &Memory, subject: &Subject) -> Outcome {
    if memory.limit.is_some() || memory.slowdown.is_some() || memory.pareto {
        return schedule(memory, subject);
    }
    let options = Options { capacity: memory.capacity, effort: memory.effort(30) };
    let placements = subject
        .sharing(memory.align, |sharing| place::best(&subject.graph, sharing, &options))
        .map_err(Failure::bad_input)?;
    let best = &placements.best;
    if let Some(capacity) = memory.capacity.filter(|capacity| best.packing.height > *capacity) {
        let (height, short) = (best.packing.height, capacity.shortfall(best.packing.height));
        let bound = best.packing.bound;
        let text = format!("the arena needs {height}, {short} more than {capacity}; its lower bound is {bound}");
        return Err(Failure::NoPlan(Report::msg(text)));
    }
    let mut layout = Layout::new(&subject.title, &subject.graph, best, &|id| subject.time(id));
    layout.capacity = memory.capacity;
    write_files(memory, subject, &placements, &layout)?;
    let rows = layout.blocks.iter().map(|block| Row {
        buffer: &block.name,
        kind: block.kind.name(),
        bytes: block.size,
        offset: block.offset,
        birth: block.lower,
        death: block.upper,
    });
    let rows: Vec<Row<'_>> = rows.collect();
    if let Some(path) = &memory.output {
        file::write(path, &csv(&rows)?)?;
    }
    let summary = summary(subject, &placements);
    match memory.format {
        Format::Csv => format::print_csv(&rows),
        Format::Json => format::print_json(&summary),
        Format::Table => {
            println!("{summary}");
            if memory.map {
                print!("\n{}", text::map(&layout));
            }
            Ok(())
        }
    }
}

fn summary(subject: &Subject, placements: &Placements) -> Summary {
    let (before, best) = (&placements.program_order, &placements.best);
    let bound = placements.bound.min(best.packing.bound);
    Summary {
        model: subject.title.clone(),
        operators: subject.graph.operators().len(),
        flops: subject.flops(),
        parameter_bytes: subject.parameters(),
        program_order_peak_bytes: before.lifetimes.peak(),
        program_order_arena_bytes: before.packing.height,
        peak_bytes: best.lifetimes.peak(),
        arena_bytes: best.packing.height,
        bound_arena_bytes: best.packing.bound,
        bound_peak_bytes: placements.bound,
        gap: if bound.0 == 0 { 0.0 } else { best.packing.height.0 as f64 / bound.0 as f64 - 1.0 },
        times: subject.timed.clone(),
    }
}

/// Liveness reports and figures, where they are wanted.
fn write_files(memory: &Memory, subject: &Subject, placements: &Placements, layout: &Layout) -> Outcome {
    let best = &placements.best;
    let time = |id: OperatorId| subject.time(id);
    let made = subject.sharing(memory.align, |sharing| trace(&subject.graph, &best.order, sharing, &time));
    if let Some(folder) = &memory.liveness {
        write_reports(folder, &made, memory)?;
    }
    let Some(folder) = &memory.figures else { return Ok(()) };
    let look = map::Look { display_names: memory.display_names };
    let name = |id: OperatorId| subject.names[id.0 as usize].clone();
    let arena = map::map(layout, look);
    let info = aidge::memory_info(&subject.graph, &best.order, &best.lifetimes, &best.packing, &name);
    write_all(
        folder,
        &[
            ("memory.html", page::page(layout, &made, &[], look)),
            ("arena.svg", page::alone(&arena)),
            ("consumption.svg", page::alone(&charts::consumption(&made))),
            ("idle.svg", page::alone(&charts::idle_times(&made))),
            ("sizes.svg", page::alone(&charts::sizes(&made, &[]))),
            ("arena.txt", text::map(layout)),
            ("trace.json", perfetto::trace(layout)),
            ("memory_info.txt", info),
        ],
    )
}

/// G10's files and the same as tables.
pub fn write_reports(folder: &Path, trace: &memory::liveness::Trace, memory: &Memory) -> Outcome {
    let mut files = g10::files(trace, &memory.run_name, memory.g10_compat);
    files.extend(g10::tables(trace));
    let files: Vec<(&str, String)> = files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
    write_all(folder, &files)
}

fn write_all(folder: &Path, files: &[(&str, String)]) -> Outcome {
    let unwritable = |error| Failure::unwritable(&folder.display().to_string(), &error);
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    files.iter().try_for_each(|(name, content)| file::write(&folder.join(name), content.as_bytes()))
}

fn csv<T: Serialize>(rows: &[T]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(Failure::failed)?;
    }
    writer.into_inner().map_err(|error| Failure::failed(error.into_error()))
}

/// Schedules with operators that run again, under a limit.
fn schedule(memory: &Memory, subject: &Subject) -> Outcome {
    let lowered = subject
        .sharing(memory.align, |sharing| lower(&subject.graph, sharing, Overwriting::Fixed, &|id| subject.time(id)))
        .map_err(Failure::bad_input)?;
    let program = &lowered.program;
    let budget = memory.effort(70);
    let found = fit::fit(program, &fit::Options { seed: memory.seed, budget, cut_off: None });
    let Some(original) = fit::Unfold::new(program).figures(&fit::Choice::keep_all(program), u64::MAX) else {
        return Err(Failure::BadInput(Report::msg("the model's operators do not run in program order")));
    };
    let point = |front: &Front, index: usize| {
        let point = &front.points()[index];
        Point {
            peak_bytes: Bytes(point.peak),
            time_us: Micros(point.time),
            peak_ratio: point.peak as f64 / original.peak.max(1) as f64,
            time_ratio: point.time / original.time,
            arena_bytes: None,
            repeated: None,
        }
    };
    let limit = |limit: Limit| match limit {
        Limit::Bytes(bytes) => bytes.0,
        Limit::Share(share) => (original.peak as f64 * share) as u64,
    };
    let points = found.front.points();
    let Some(target) = memory.target() else {
        let all: Vec<Point> = (0..points.len()).map(|index| point(&found.front, index)).collect();
        return print(memory, subject, &all, program.least_peak());
    };
    let best = match target {
        Target::Limit(wanted) => points.iter().rposition(|p| p.peak <= limit(wanted)),
        Target::Slowdown(factor) => points.iter().position(|p| p.time <= original.time * factor),
    };
    let Some(best) = best else {
        let smallest = points.first().map_or(original.peak, |p| p.peak);
        let text = format!(
            "no schedule keeps the target: the smallest one found needs {}, the lower bound is {}",
            Bytes(smallest),
            Bytes(program.least_peak())
        );
        return Err(Failure::NoPlan(Report::msg(text)));
    };
    let steps = fit::steps(program, &points[best].choice).unwrap_or_default();
    let held = buffers(program, &steps, memory.align);
    let packing = pack(&held, &Options { capacity: None, effort: memory.effort(30) }).map_err(Failure::bad_input)?;
    check::packing(&held, &packing).map_err(Failure::failed)?;
    let mut chosen = point(&found.front, best);
    chosen.arena_bytes = Some(packing.height);
    chosen.repeated = Some(steps.len().saturating_sub(program.operators.len()));
    if let Some(path) = &memory.output {
        let ran = steps.iter().filter_map(|step| match step {
            fit::Step::Run(operator) => lowered.operators[*operator as usize],
            _ => None,
        });
        let mut names = String::from("step,operator,name\n");
        for (step, id) in ran.enumerate() {
            names += &format!("{step},{},{}\n", id.0, subject.graph.operator(id).name);
        }
        file::write(path, names.as_bytes())?;
    }
    print(memory, subject, &[chosen], program.least_peak())
}

fn print(memory: &Memory, subject: &Subject, points: &[Point], bound: u64) -> Outcome {
    match memory.format {
        Format::Csv => format::print_csv(points),
        Format::Json => format::print_json(&points),
        Format::Table => {
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
            println!("lower bound of the peak: {}; times {}", Bytes(bound), subject.timed);
            Ok(())
        }
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "model        {}", self.model)?;
        writeln!(f, "operators    {}, {:.3} GFLOP", self.operators, self.flops as f64 / 1e9)?;
        writeln!(f, "parameters   {}", self.parameter_bytes)?;
        writeln!(f, "             program order   best order")?;
        let row = |f: &mut std::fmt::Formatter<'_>, name: &str, before: Bytes, after: Bytes| {
            writeln!(f, "{name:<12} {:>13}   {:>10}", before.to_string(), after.to_string())
        };
        row(f, "peak", self.program_order_peak_bytes, self.peak_bytes)?;
        row(f, "arena", self.program_order_arena_bytes, self.arena_bytes)?;
        writeln!(f, "lower bound  {} for this order, {} for any", self.bound_arena_bytes, self.bound_peak_bytes)?;
        writeln!(f, "gap          {:.2} %", 100.0 * self.gap)?;
        write!(f, "times        {}", self.times)
    }
}
