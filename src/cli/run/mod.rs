//! `edgecut run`: executes a model on this machine's processor.

mod model;

use std::path::PathBuf;

use crate::cli::{Outcome, model::ModelArguments};

/// Run a model on this machine and say how long it took.
#[derive(clap::Args)]
pub struct Run {
    #[command(flatten)]
    model: ModelArguments,

    /// Take inputs from this .npz file: an array `in_<name>` for each; absent ones are generated from their names
    #[arg(long, value_name = "FILE.npz")]
    inputs: Option<PathBuf>,

    /// Write the results to this .npz file, as `out_0`, `out_1`, …
    #[arg(long, value_name = "FILE.npz")]
    outputs: Option<PathBuf>,

    /// Threads that compute
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// Run this many times and give the distribution of the latency
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
}

impl Run {
    pub fn run(self) -> Outcome {
        model::run(&self)
    }
}
