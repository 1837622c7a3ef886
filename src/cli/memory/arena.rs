//! `edgecut memory --arena`: packs the buffers of a CSV file.

use std::{io::Write, path::Path};

use miette::Report;
use serde::Serialize;

use super::Memory;
use crate::{
    cli::{Failure, Outcome, file, format::Format},
    memory::{self, Options, check, minimalloc::Table},
    units::Bytes,
};

/// What is told of a packing.
#[derive(Serialize)]
struct Summary {
    buffers: usize,
    arena_bytes: Bytes,
    bound_bytes: Bytes,
    gap: f64,
    capacity_bytes: Option<Bytes>,
}

pub fn run(memory: &Memory, input: &Path) -> Outcome {
    let name = input.display().to_string();
    let bad = |error: &dyn std::error::Error| Failure::BadInput(Report::msg(format!("{name}: {error}")));
    let table = Table::parse(&file::read(input)?).map_err(|e| bad(&e))?;
    let options = Options { capacity: memory.capacity, effort: memory.effort(300) };
    let packing = memory::pack(&table.buffers, &options).map_err(|e| bad(&e))?;
    check::packing(&table.buffers, &packing).map_err(Failure::failed)?;
    let summary = Summary {
        buffers: table.buffers.len(),
        arena_bytes: packing.height,
        bound_bytes: packing.bound,
        gap: packing.gap(),
        capacity_bytes: memory.capacity,
    };
    if let Some(capacity) = memory.capacity.filter(|capacity| packing.height > *capacity) {
        return Err(Failure::NoPlan(Report::msg(too_small(capacity, packing.bound, packing.height))));
    }
    let csv = table.print(&packing);
    if let Some(output) = &memory.output {
        file::write(output, csv.as_bytes())?;
    }
    let text = match memory.format {
        Format::Csv => csv,
        Format::Json => serde_json::to_string_pretty(&summary).map_err(Failure::failed)? + "\n",
        Format::Table => format!("{summary}\n"),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::failed)
}

fn too_small(capacity: Bytes, bound: Bytes, height: Bytes) -> String {
    match bound > capacity {
        true => format!(
            "no packing fits in {} bytes: the buffers need at least {} bytes, {} more",
            capacity.0,
            bound.0,
            capacity.shortfall(bound)
        ),
        false => format!(
            "no packing within {} bytes was found: the best one takes {} bytes, the lower bound is {}; \
             --effort searches longer",
            capacity.0, height.0, bound.0
        ),
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "buffers      {}", self.buffers)?;
        writeln!(f, "arena        {} ({} bytes)", self.arena_bytes, self.arena_bytes.0)?;
        writeln!(f, "lower bound  {} ({} bytes)", self.bound_bytes, self.bound_bytes.0)?;
        write!(f, "gap          {:.2} %", 100.0 * self.gap)?;
        if let Some(capacity) = self.capacity_bytes {
            write!(f, "\ncapacity     {} ({} left)", capacity, self.arena_bytes.shortfall(capacity))?;
        }
        Ok(())
    }
}
