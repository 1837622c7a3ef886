//! `edgecut memory schedule`: schedules that need less memory, of models and of other planners' graphs.

mod batch;
mod graph;
mod model;
mod offload;
mod rows;
mod seeds;

use std::path::{Path, PathBuf};

use edgecut_interop::network::Network;
use edgecut_memory::{
    remat::RematOptions,
    target::{Limit, Target},
};

use super::{effort, subject::SubjectFlags};
use crate::{
    Outcome,
    format::Format,
    ineffective::{self, Flag},
    kind, source_file,
};

/// Millions of schedule steps that are tried if `--effort` is not given.
const EFFORT: u64 = 70;

/// Find schedules of a model that need less memory.
///
/// By another order of operators, recomputation, stretches in parts with halos, and copies to a host or a neighbour.
#[derive(clap::Args)]
pub struct Schedule {
    /// Relay text, a DLMO or MAGIS graph (JSON), or a network of bare tensors (JSON)
    #[arg(value_name = "MODEL|GRAPH", required_unless_present = "configs")]
    input: Option<PathBuf>,

    #[command(flatten)]
    target: TargetFlags,

    #[command(flatten)]
    flags: SubjectFlags,

    #[command(flatten)]
    execution: ExecutionFlags,

    #[command(flatten)]
    search: SearchFlags,

    /// Write the schedule to this file
    ///
    /// A model's as the CSV of its steps, a DLMO or MAGIS graph's in the form of the input; without a target, the CSV
    /// of the front.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What the schedule must keep.
#[derive(clap::Args)]
struct TargetFlags {
    /// The fastest schedule within this peak, or share of the original
    ///
    /// A size such as 64MiB, or a percentage such as 40%; exit code 3 if no schedule is found.
    #[arg(long, help_heading = "Target", value_name = "SIZE|PERCENT", conflicts_with = "slowdown")]
    limit: Option<Limit>,

    /// The smallest schedule within this multiple of the original time
    ///
    /// 1.1 allows a tenth more time; exit code 3 if no schedule is found.
    #[arg(long, help_heading = "Target", value_name = "FACTOR", value_parser = factor)]
    slowdown: Option<f64>,

    /// Every schedule that no other beats in peak and time (the default)
    #[arg(long, help_heading = "Target", conflicts_with_all = ["limit", "slowdown"])]
    pareto: bool,

    /// Schedule the graphs of a list: lines of `path limit`
    ///
    /// Paths are relative to the list's folder; `#` begins a comment. A row is printed for each.
    #[arg(long, help_heading = "Target", value_name = "FILE", conflicts_with_all = ["input", "limit", "slowdown", "pareto"])]
    configs: Option<PathBuf>,
}

/// Where a schedule of a model is executed.
#[derive(clap::Args)]
struct ExecutionFlags {
    /// Run the schedule, and compare results, memory and time with the model's
    ///
    /// It runs on this machine's processor, or with --cluster on the agents of two servers.
    /// Memory and time are compared with those of the model in program order. Without a target, the schedule keeps a
    /// slowdown of 1.1.
    #[arg(long, help_heading = "Execution", conflicts_with = "pareto")]
    run: bool,

    /// Tensors may wait on the nearest other server, at the link's cost
    #[arg(long, help_heading = "Execution", value_name = "FILE.toml")]
    cluster: Option<PathBuf>,
}

/// How hard to search.
#[derive(clap::Args)]
struct SearchFlags {
    /// The same seed and effort give the same result
    #[arg(long, help_heading = "Search", value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Search a graph from this number of seeds, and print the scatter
    #[arg(long, help_heading = "Search", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,

    /// Millions of schedule steps to try [default: 70]; 20 take about 1 s
    #[arg(long, help_heading = "Search", value_name = "MILLIONS")]
    effort: Option<u64>,
}

impl Schedule {
    pub fn run(self) -> Outcome {
        self.output.as_deref().map_or(Ok(()), source_file::check_place)?;
        if let Some(list) = &self.target.configs {
            let mut flags = self.of_models();
            flags.push(("--seeds", self.search.seeds.is_some()));
            ineffective::refuse(&flags, "--configs")?;
            return batch::run(&self, list);
        }
        // clap requires one of them.
        let Some(input) = &self.input else { return Ok(()) };
        let bytes = source_file::read(input)?;
        match () {
            () if !kind::is_json_object(&bytes) => self.model(input),
            () if Network::states_elementwise(&bytes) => self.network(input, &bytes),
            () => {
                ineffective::refuse(&self.of_models(), "a graph of DLMO or MAGIS")?;
                graph::run(&self, input, &bytes)
            }
        }
    }

    fn model(&self, input: &Path) -> Outcome {
        ineffective::refuse(&[("--seeds", self.search.seeds.is_some())], "a model")?;
        model::run(self, &self.flags.read_model(input)?)
    }

    fn network(&self, input: &Path, bytes: &[u8]) -> Outcome {
        let mut flags = self.flags.of_models();
        flags.extend(self.execution.all());
        flags.push(("--seeds", self.search.seeds.is_some()));
        ineffective::refuse(&flags, "a network of bare tensors")?;
        model::run(self, &self.flags.read_network(input, bytes)?)
    }

    /// The flags that other planners' graphs have no use for.
    fn of_models(&self) -> Vec<Flag> {
        let mut flags = self.flags.all();
        flags.extend(self.execution.all());
        flags
    }

    /// The target, if one was given.
    fn target(&self) -> Option<Target> {
        self.target.limit.map(Target::Limit).or(self.target.slowdown.map(Target::Slowdown))
    }

    /// The search's options, from `seed`.
    fn options(&self, seed: u64) -> RematOptions {
        RematOptions { seed, budget: effort(self.search.effort, EFFORT), cut_off: None }
    }
}

impl ExecutionFlags {
    fn all(&self) -> [Flag; 2] {
        [("--run", self.run), ("--cluster", self.cluster.is_some())]
    }
}

/// A multiple of the original time.
fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| *factor >= 1.0 && factor.is_finite());
    factor.ok_or_else(|| format!("`{text}` is not a factor of 1 or more; 1.1 allows a tenth more time"))
}
