//! `edgecut memory pack`: offsets for buffers with given lifetimes.

use std::{fmt, path::PathBuf};

use edgecut_graph::units::Bytes;
use edgecut_session::{
    memory::{
        self, PackOptions,
        pack::{ArenaSummary, PackSummary, Pool, PoolSummary, pool},
    },
    plan::options::TimeLimit,
};

use crate::{
    Outcome,
    format::{self, Format},
    source_file, stderr,
    stdout::print_line,
};

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

    /// Stop the search after this time and use the best packing so far; `none` for no limit [default: 45s]
    ///
    /// Ctrl-C does so too. The same file and effort give the same packing, if the time does not end the search.
    #[arg(long, value_name = "TIME")]
    time_limit: Option<TimeLimit>,

    /// Write the file with a column `offset` to this file
    #[arg(long, value_name = "FILE.csv")]
    output: Option<PathBuf>,

    /// How to print the result: CSV has the offsets
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Pack {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_writable)?;
        let time_limit = self.time_limit.unwrap_or_default();
        let options = PackOptions { capacity: self.capacity, pool: self.pool, effort: self.effort, time_limit };
        let packed = memory::pack(&self.file, &options, &stderr::events())?;
        match (self.format, &packed.summary) {
            (Format::Csv, _) => format::print_all(packed.csv.as_bytes())?,
            (Format::Json, summary) => format::print_json(summary)?,
            (Format::Table, PackSummary::Arena(arena)) => print_line!("{}", ArenaTable(arena)),
            (Format::Table, PackSummary::Pools(pools)) => print_pools(pools),
        }
        self.output.as_deref().map_or(Ok(()), |path| source_file::write(path, packed.csv.as_bytes()))
    }
}

fn print_pools(pools: &[PoolSummary]) {
    print_line!("{:<12} {:>12} {:>8} {:>12} {:>12}", "pool", "capacity", "buffers", "arena", "lower bound");
    for pool in pools {
        let capacity = pool.capacity_bytes.map_or("-".to_string(), |bytes| bytes.to_string());
        let (arena, bound) = (pool.arena_bytes.to_string(), pool.bound_bytes.to_string());
        print_line!("{:<12} {capacity:>12} {:>8} {arena:>12} {bound:>12}", pool.pool, pool.buffers);
    }
}

/// The figures of one arena, as a table.
struct ArenaTable<'a>(&'a ArenaSummary);

impl fmt::Display for ArenaTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ArenaTable(summary) = self;
        writeln!(f, "buffers      {}", summary.buffers)?;
        writeln!(f, "arena        {} ({} bytes)", summary.arena_bytes, summary.arena_bytes.0)?;
        writeln!(f, "lower bound  {} ({} bytes)", summary.bound_bytes, summary.bound_bytes.0)?;
        write!(f, "gap          {:.2} %", 100.0 * summary.gap)?;
        if let Some(capacity) = summary.capacity_bytes {
            write!(f, "\ncapacity     {} ({} left)", capacity, summary.arena_bytes.shortfall(capacity))?;
        }
        Ok(())
    }
}
