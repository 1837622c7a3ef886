//! `edgecut run`: executes a model on this machine's processor, or a plan on the agents of its cluster.

mod model;
mod plan;
mod print;

use std::path::PathBuf;

use crate::cli::{
    Failure, Outcome,
    cluster::{ClusterFlag, ThreadsFlag},
    file,
    format::Format,
    kind,
    model::ModelFlags,
};

/// Run a model on this machine, or a plan on the agents that it was made for, and say how long it took.
#[derive(clap::Args)]
pub struct Run {
    /// Relay text, or the plan.json of `edgecut plan`
    #[arg(value_name = "MODEL|PLAN")]
    input: PathBuf,

    #[command(flatten)]
    flags: ModelFlags,

    /// The plan's model, if it is not where the plan says
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,

    #[command(flatten)]
    cluster: ClusterFlag,

    /// Write the results to this .npz file, as `out_0`, `out_1`, …
    #[arg(long, value_name = "FILE.npz")]
    outputs: Option<PathBuf>,

    #[command(flatten)]
    threads: ThreadsFlag,

    /// Run this many times and give the distribution of the latency; 1 for a model, 10 for a plan if not given
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,

    /// Keep several inputs of a plan under way at a time and measure the time between results
    #[arg(long)]
    throughput: bool,

    /// Do not compute a plan's model on this machine too, to compare the outputs
    #[arg(long)]
    no_check: bool,

    /// Write what was predicted of a plan's run and what was measured, side by side, as a Chrome trace (for Perfetto)
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,

    /// What to print of a plan's run
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Run {
    pub fn run(self) -> Outcome {
        let name = self.input.display().to_string();
        let bytes = std::fs::read(&self.input).map_err(|error| Failure::unreadable(&name, &error))?;
        [&self.outputs, &self.trace].into_iter().flatten().try_for_each(|path| file::check_place(path))?;
        match kind::is_json_object(&bytes) {
            true => plan::run(&self, &bytes),
            false => model::run(&self),
        }
    }
}
