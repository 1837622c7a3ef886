//! `edgecut memory MODEL`: the arena in program order and in the order of least peak.

use miette::Report;
use serde::Serialize;

use super::{Memory, figures, fuse::Fusion, subject::Subject};
use crate::{
    cli::{
        Failure, Outcome, file,
        format::{self, Format},
    },
    memory::{
        Options,
        place::{self, Placements},
    },
    report::memory::{layout::Layout, text},
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
    /// Concatenations whose operands are made where the result is.
    joined_in_place: usize,
    /// What fusing changed, if the operators were fused.
    #[serde(skip_serializing_if = "Option::is_none")]
    fusion: Option<Fusion>,
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
    show(memory, subject, &placements(memory, subject)?, None)
}

/// A subject in program order and in the best order found.
pub fn placements(memory: &Memory, subject: &Subject) -> Result<Placements, Failure> {
    let options = Options { capacity: memory.capacity, effort: memory.effort(30) };
    let placed = subject.sharing(memory.align, |sharing| place::best(&subject.graph, sharing, &options));
    placed.map_err(Failure::bad_input)
}

/// Prints and writes all that was asked for of a placement.
pub fn show(memory: &Memory, subject: &Subject, placements: &Placements, fusion: Option<Fusion>) -> Outcome {
    let best = &placements.best;
    if let Some(capacity) = memory.capacity.filter(|capacity| best.packing.height > *capacity) {
        let (height, short) = (best.packing.height, capacity.shortfall(best.packing.height));
        let bound = best.packing.bound;
        let text = format!("the arena needs {height}, {short} more than {capacity}; its lower bound is {bound}");
        return Err(Failure::NoPlan(Report::msg(text)));
    }
    let mut layout = Layout::new(&subject.title, &subject.graph, best, &|id| subject.time(id));
    layout.capacity = memory.capacity;
    figures::write(memory, subject, placements, &layout)?;
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
        file::write(path, &format::to_csv(&rows)?)?;
    }
    let summary = Summary { fusion, ..summary(subject, placements) };
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
        flops: subject.flops,
        parameter_bytes: subject.parameters(),
        program_order_peak_bytes: before.lifetimes.peak(),
        program_order_arena_bytes: before.packing.height,
        peak_bytes: best.lifetimes.peak(),
        arena_bytes: best.packing.height,
        bound_arena_bytes: best.packing.bound,
        bound_peak_bytes: placements.bound,
        gap: if bound.0 == 0 { 0.0 } else { best.packing.height.0 as f64 / bound.0 as f64 - 1.0 },
        times: subject.timed.clone(),
        joined_in_place: best.joined.len(),
        fusion: None,
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
        if self.joined_in_place > 0 {
            writeln!(f, "joined       {} concatenations in place", self.joined_in_place)?;
        }
        write!(f, "times        {}", self.times)?;
        self.fusion.as_ref().map_or(Ok(()), |fusion| write!(f, "\n\n{fusion}"))
    }
}
