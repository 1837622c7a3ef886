//! `edgecut memory MODEL`: the arena in program order and in the order of least peak.

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
        self, Options, g10,
        place::{self, Placements},
        trace::trace,
    },
    report::memory::{aidge, charts, layout::Layout, map, page, perfetto, text},
    units::Bytes,
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

pub fn run(memory: &Memory, subject: &Subject) -> Outcome {
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
