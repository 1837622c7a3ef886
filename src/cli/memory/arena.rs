//! `edgecut memory --arena`: packs the buffers of a CSV file.

use std::path::Path;

use miette::Report;
use serde::Serialize;

use super::Memory;
use crate::{
    cli::{
        Failure, Outcome, file,
        format::{self, Format},
        kind::{self, Kind},
    },
    memory::{
        self, Options, Packing,
        arena::pools::{Pool, PoolError, pack_pools},
        check,
        minimalloc::Table,
    },
    units::{Bytes, UnitError},
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
    let bytes = file::read(input)?;
    let table = Table::parse(&bytes).map_err(|error| kind::instead(input, &bytes, Kind::Buffers, error))?;
    let options = Options { capacity: memory.capacity, effort: memory.effort(300) };
    if !memory.pool.is_empty() {
        return in_pools(memory, &table, &options);
    }
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
    format::print_all(text.as_bytes())
}

/// What is told of a pool.
#[derive(Serialize)]
struct Use {
    pool: String,
    capacity_bytes: Option<Bytes>,
    buffers: usize,
    arena_bytes: Bytes,
    /// For the buffers that lie in it.
    bound_bytes: Bytes,
}

fn in_pools(memory: &Memory, table: &Table, options: &Options) -> Outcome {
    let pooled = pack_pools(&table.buffers, &memory.pool, options).map_err(|error| match error {
        PoolError::Full { .. } => Failure::NoPlan(Report::msg(error.to_string())),
        PoolError::Arena(error) => Failure::bad_input(error),
    })?;
    check::pools(&table.buffers, &memory.pool, &pooled).map_err(Failure::failed)?;
    let names: Vec<&str> = pooled.pools.iter().map(|&pool| memory.pool[pool].name.as_str()).collect();
    let csv = table.print_pools(&pooled.offsets(), &names);
    if let Some(output) = &memory.output {
        file::write(output, csv.as_bytes())?;
    }
    let used = |(pool, packing): (&Pool, &Packing)| Use {
        pool: pool.name.clone(),
        capacity_bytes: pool.capacity,
        buffers: packing.offsets.len(),
        arena_bytes: packing.height,
        bound_bytes: packing.bound,
    };
    let uses: Vec<Use> = memory.pool.iter().zip(&pooled.packings).map(used).collect();
    match memory.format {
        Format::Csv => print!("{csv}"),
        Format::Json => format::print_json(&uses)?,
        Format::Table => {
            println!("{:<12} {:>12} {:>8} {:>12} {:>12}", "pool", "capacity", "buffers", "arena", "lower bound");
            for used in &uses {
                let capacity = used.capacity_bytes.map_or("-".to_string(), |bytes| bytes.to_string());
                let (arena, bound) = (used.arena_bytes.to_string(), used.bound_bytes.to_string());
                println!("{:<12} {capacity:>12} {:>8} {arena:>12} {bound:>12}", used.pool, used.buffers);
            }
        }
    }
    Ok(())
}

/// `sram=100KB`, or a name alone.
pub fn pool(text: &str) -> Result<Pool, UnitError> {
    let (name, capacity) = text.split_once('=').map_or((text, None), |(name, size)| (name, Some(size)));
    Ok(Pool { name: name.to_string(), capacity: capacity.map(str::parse).transpose()? })
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
