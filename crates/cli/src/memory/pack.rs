//! `edgecut memory pack`: offsets for buffers with given lifetimes.

use edgecut_session::file_kind::{self as kind, FileKind};
use std::{fmt, path::PathBuf};

use edgecut_graph::units::{Bytes, UnitError};
use edgecut_interop::minimalloc::BufferTable;
use edgecut_memory::{
    PackOptions, Packing, Pool,
    arena::pools::{PoolError, pack_pools},
    check, pack,
};
use edgecut_session::error::Message;
use serde::Serialize;

use super::effort;
use crate::{
    Failure, Outcome,
    format::{self, Format},
    source_file,
    stdout::print_line,
};

/// Millions of placements that are tried if `--effort` is not given.
const EFFORT: u64 = 300;

/// Pack buffers with given lifetimes into an arena, or into several memories.
#[derive(clap::Args)]
pub struct Pack {
    /// MiniMalloc's CSV: id, lower, upper, size, and optionally alignment and offset
    #[arg(value_name = "FILE.csv")]
    file: PathBuf,

    /// Make the arena as small as possible (the default)
    #[arg(long, conflicts_with = "capacity", help_heading = "Target")]
    minimize: bool,

    /// Find a packing that fits in this size; exit code 3 if there is none
    #[arg(long, value_name = "SIZE", help_heading = "Target", value_parser = Bytes::with_unit)]
    capacity: Option<Bytes>,

    /// A memory for the buffers, in order of preference; repeat it for several
    ///
    /// What does not fit goes to the next memory. The last one may be without a size, and takes the rest.
    #[arg(
        long, value_name = "NAME[=SIZE]", conflicts_with_all = ["capacity", "minimize"], value_parser = pool,
        help_heading = "Target"
    )]
    pool: Vec<Pool>,

    /// Millions of placements to try [default: 300]; 30 take about 1 s
    #[arg(long, value_name = "MILLIONS")]
    effort: Option<u64>,

    /// Write the file with a column `offset` to this file
    #[arg(long, value_name = "FILE.csv")]
    output: Option<PathBuf>,

    /// How to print the result: CSV has the offsets
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The figures of a packing.
#[derive(Serialize)]
struct Summary {
    buffers: usize,
    arena_bytes: Bytes,
    bound_bytes: Bytes,
    gap: f64,
    capacity_bytes: Option<Bytes>,
}

/// The figures of one memory of several.
#[derive(Serialize)]
struct PoolSummary {
    pool: String,
    capacity_bytes: Option<Bytes>,
    buffers: usize,
    arena_bytes: Bytes,
    /// Of the arena for the buffers that lie in this memory.
    bound_bytes: Bytes,
}

impl Pack {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_writable)?;
        let bytes = source_file::read(&self.file)?;
        let table = BufferTable::parse(&bytes)
            .map_err(|error| kind::mismatch_error(&self.file, &bytes, FileKind::Buffers, error))?;
        let options = PackOptions { capacity: self.capacity, effort: effort::steps(self.effort, EFFORT) };
        match self.pool.is_empty() {
            true => self.in_one(&table, &options),
            false => self.in_pools(&table, &options),
        }
    }

    fn in_one(&self, table: &BufferTable, options: &PackOptions) -> Outcome {
        let name = self.file.display();
        let packing = pack(&table.buffers, options)
            .map_err(|error| Failure::BadInput(Message::from(format!("{name}: {error}"))))?;
        check::packing(&table.buffers, &packing).map_err(Failure::failed)?;
        if let Some(capacity) = self.capacity.filter(|capacity| packing.height > *capacity) {
            return Err(Failure::NoPlan(Message::from(too_small(capacity, packing.bound, packing.height))));
        }
        let summary = Summary {
            buffers: table.buffers.len(),
            arena_bytes: packing.height,
            bound_bytes: packing.bound,
            gap: packing.gap(),
            capacity_bytes: self.capacity,
        };
        let csv = table.print(&packing);
        match self.format {
            Format::Csv => format::print_all(csv.as_bytes())?,
            Format::Json => format::print_json(&summary)?,
            Format::Table => format::print_all(format!("{summary}\n").as_bytes())?,
        }
        self.write(&csv)
    }

    fn in_pools(&self, table: &BufferTable, options: &PackOptions) -> Outcome {
        let pooled = pack_pools(&table.buffers, &self.pool, options).map_err(|error| match error {
            PoolError::Full { .. } => Failure::NoPlan(Message::from(error.to_string())),
            PoolError::Arena(error) => Failure::bad_input(error),
        })?;
        check::pools(&table.buffers, &self.pool, &pooled).map_err(Failure::failed)?;
        let names: Vec<&str> = pooled.pools.iter().map(|&pool| self.pool[pool].name.as_str()).collect();
        let csv = table.print_pools(&pooled.offsets(), &names);
        let summary = |(pool, packing): (&Pool, &Packing)| PoolSummary {
            pool: pool.name.clone(),
            capacity_bytes: pool.capacity,
            buffers: packing.offsets.len(),
            arena_bytes: packing.height,
            bound_bytes: packing.bound,
        };
        let pools: Vec<PoolSummary> = self.pool.iter().zip(&pooled.packings).map(summary).collect();
        match self.format {
            Format::Csv => format::print_all(csv.as_bytes())?,
            Format::Json => format::print_json(&pools)?,
            Format::Table => {
                print_line!("{:<12} {:>12} {:>8} {:>12} {:>12}", "pool", "capacity", "buffers", "arena", "lower bound");
                for pool in &pools {
                    let capacity = pool.capacity_bytes.map_or("-".to_string(), |bytes| bytes.to_string());
                    let (arena, bound) = (pool.arena_bytes.to_string(), pool.bound_bytes.to_string());
                    print_line!("{:<12} {capacity:>12} {:>8} {arena:>12} {bound:>12}", pool.pool, pool.buffers);
                }
            }
        }
        self.write(&csv)
    }

    fn write(&self, csv: &str) -> Outcome {
        self.output.as_deref().map_or(Ok(()), |path| source_file::write(path, csv.as_bytes()))
    }
}

/// `sram=100KB`, or a name alone.
fn pool(text: &str) -> Result<Pool, UnitError> {
    let (name, capacity) = text.split_once('=').map_or((text, None), |(name, size)| (name, Some(size)));
    Ok(Pool { name: name.to_string(), capacity: capacity.map(Bytes::with_unit).transpose()? })
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

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
