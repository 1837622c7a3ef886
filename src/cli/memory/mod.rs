//! `edgecut memory`: who lives when, where it lies, and how to make it fit.

mod arena;
mod batch;
mod fit;

use std::path::PathBuf;

use crate::{
    cli::{Failure, Outcome},
    memory::workload::Limit,
    units::Bytes,
};

/// Place tensors in memory, and make programs fit into less of it; always with the lower bound.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("input").required(true).args(["arena", "graph", "configs"])))]
pub struct Memory {
    /// Pack the buffers of this file (MiniMalloc's CSV: id, lower, upper, size, and alignment, offset if wanted)
    #[arg(long, value_name = "FILE.csv")]
    arena: Option<PathBuf>,

    /// Schedule this graph: DLMO's pattern.json, or MAGIS's export
    #[arg(long, value_name = "FILE.json")]
    graph: Option<PathBuf>,

    /// Schedule many graphs: lines of `path limit`, paths from the file's folder
    #[arg(long, value_name = "FILE")]
    configs: Option<PathBuf>,

    /// Make the arena as small as possible (the default)
    #[arg(long, conflicts_with = "capacity")]
    minimize: bool,

    /// Find a packing that fits in this size; exit code 3 if none is found
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,

    /// The fastest schedule within this peak: a size, or a percentage of the original peak; exit code 3 if none is found
    #[arg(long, value_name = "SIZE|PERCENT", conflicts_with = "slowdown")]
    limit: Option<Limit>,

    /// The smallest schedule that takes at most so many times the original time
    #[arg(long, value_name = "FACTOR")]
    slowdown: Option<f64>,

    /// All schedules that no other one beats in both peak and time
    #[arg(long, conflicts_with_all = ["limit", "slowdown"])]
    pareto: bool,

    /// The same seed and effort give the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// How long to search: millions of buffers (arena, 300 if not given; 30 take about a second) or of steps of
    /// schedules looked at (70 if not given; 20 take about a second)
    #[arg(long, value_name = "MILLIONS")]
    effort: Option<u64>,

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
        if self.slowdown.is_some_and(|factor| factor.is_nan() || factor < 1.0) {
            let text = "--slowdown is a factor of 1 or more: 1.1 allows a tenth more time";
            return Err(Failure::BadInput(miette::Report::msg(text)));
        }
        match (&self.arena, &self.graph, &self.configs) {
            (Some(file), _, _) => arena::run(&self, file),
            (_, Some(file), _) => fit::run(&self, file),
            (_, _, Some(file)) => batch::run(&self, file),
            // clap requires one of them.
            _ => Ok(()),
        }
    }

    fn effort(&self, default: u64) -> u64 {
        self.effort.unwrap_or(default).saturating_mul(1_000_000)
    }
}
