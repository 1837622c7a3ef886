//! `edgecut memory`: who lives when, where it lies, and how to make it fit.

mod arena;

use std::path::PathBuf;

use crate::{cli::Outcome, units::Bytes};

/// Place tensors in memory: arena layouts with their lower bound.
#[derive(clap::Args)]
pub struct Memory {
    /// Pack the buffers of this file (MiniMalloc's CSV: id, lower, upper, size, and alignment, offset if wanted)
    #[arg(long, value_name = "FILE.csv")]
    arena: PathBuf,

    /// Make the arena as small as possible (the default)
    #[arg(long, conflicts_with = "capacity")]
    minimize: bool,

    /// Find a packing that fits in this size; exit code 3 if none is found
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,

    /// How long to search: buffers looked at, in millions; 30 take about a second
    #[arg(long, value_name = "MILLIONS", default_value_t = 300)]
    effort: u64,

    /// Write the result to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum Format {
    #[default]
    Table,
    Csv,
    Json,
}

impl Memory {
    pub fn run(self) -> Outcome {
        arena::run(&self)
    }
}
