//! `edgecut run`: executes a model on this machine's processor, or a plan on the agents of its cluster.

mod model;
mod plan;
mod print;

use std::path::PathBuf;

use crate::{
    Failure, Outcome,
    cluster::{ClusterFlag, ThreadsFlag},
    format::Format,
    kind,
    model::ModelFlags,
    source_file as file,
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
    #[arg(long, value_name = "FILE", help_heading = "Plans")]
    model: Option<PathBuf>,

    #[command(flatten)]
    cluster: ClusterFlag,

    /// Write the results to this file, as `out_0`, `out_1`, …
    #[arg(long, value_name = "FILE.npz")]
    outputs: Option<PathBuf>,

    #[command(flatten)]
    threads: ThreadsFlag,

    /// Number of timed runs [default: 1 of a model, 10 of a plan]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: Option<u32>,

    /// Keep several inputs in flight and measure the time between results
    #[arg(long, help_heading = "Plans")]
    throughput: bool,

    /// Do not compare the outputs with those of the model on this machine
    #[arg(long, help_heading = "Plans")]
    no_check: bool,

    /// Write predicted and measured times as a Chrome trace, for Perfetto
    #[arg(long, value_name = "FILE.json", help_heading = "Plans")]
    trace: Option<PathBuf>,

    /// How to print a plan's run
    #[arg(long, value_enum, default_value_t, help_heading = "Plans")]
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
