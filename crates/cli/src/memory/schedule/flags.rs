//! The flags of `edgecut memory schedule`.

use std::path::PathBuf;

use edgecut_session::memory::{ScheduleOptions, schedule::options::Limit};

use crate::{format::Format, ineffective::Flag, memory::subject::SubjectFlags};

/// Find schedules of a model that need less memory.
///
/// By another order of operators, recomputation, segments in parts with halos, and copies to a host or a neighbour.
#[derive(clap::Args)]
pub struct Schedule {
    /// An ONNX model, Relay text, a DLMO or MAGIS graph (JSON), or a network of bare tensors (JSON)
    #[arg(value_name = "MODEL|GRAPH", required_unless_present = "configs")]
    pub(super) input: Option<PathBuf>,

    #[command(flatten)]
    pub(super) target: TargetFlags,

    #[command(flatten)]
    pub(super) flags: SubjectFlags,

    #[command(flatten)]
    pub(super) execution: ExecutionFlags,

    #[command(flatten)]
    pub(super) search: SearchFlags,

    /// Write the schedule to this file
    ///
    /// A model's as the CSV of its steps, a DLMO or MAGIS graph's in the form of the input; without a target, the CSV
    /// of the front.
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

/// What the schedule must keep.
#[derive(clap::Args)]
pub(super) struct TargetFlags {
    /// The fastest schedule within this peak, or share of the original
    ///
    /// A size such as 64MiB, or a percentage such as 40%; exit code 3 if no schedule is found.
    #[arg(long, help_heading = "Target", value_name = "SIZE|PERCENT", conflicts_with = "slowdown")]
    pub(super) limit: Option<Limit>,

    /// The smallest schedule within this multiple of the original time
    ///
    /// 1.1 allows a tenth more time; exit code 3 if no schedule is found.
    #[arg(long, help_heading = "Target", value_name = "FACTOR", value_parser = factor)]
    pub(super) slowdown: Option<f64>,

    /// Every schedule that no other beats in peak and time (the default)
    #[arg(long, help_heading = "Target", conflicts_with_all = ["limit", "slowdown"])]
    pub(super) pareto: bool,

    /// Schedule the graphs of a list: lines of `path limit`
    ///
    /// Paths are relative to the list's folder; `#` begins a comment. A row is printed for each.
    #[arg(long, help_heading = "Target", value_name = "FILE", conflicts_with_all = ["input", "limit", "slowdown", "pareto"])]
    pub(super) configs: Option<PathBuf>,
}

/// Where a schedule of a model is executed.
#[derive(clap::Args)]
pub(super) struct ExecutionFlags {
    /// Run the schedule, and compare results, memory and time with the model's
    ///
    /// It runs on this machine's processor, or with --cluster on the agents of two servers.
    /// Memory and time are compared with those of the model in program order. Without a target, the schedule keeps a
    /// slowdown of 1.1.
    #[arg(long, help_heading = "Execution", conflicts_with = "pareto")]
    pub(super) run: bool,

    /// Tensors may wait on the nearest other server, at the link's cost
    #[arg(long, help_heading = "Execution", value_name = "FILE.toml")]
    pub(super) cluster: Option<PathBuf>,
}

/// How hard to search.
#[derive(clap::Args)]
pub(super) struct SearchFlags {
    /// The same seed and effort give the same result
    #[arg(long, help_heading = "Search", value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Search a graph from this number of seeds, and print the scatter
    #[arg(long, help_heading = "Search", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(super) seeds: Option<u64>,

    /// Millions of schedule steps to try [default: 100, and more above 500 operators]; 20 take about 1 s
    #[arg(long, help_heading = "Search", value_name = "MILLIONS")]
    pub(super) effort: Option<u64>,
}

impl Schedule {
    /// These flags as options.
    pub(super) fn options(&self) -> ScheduleOptions {
        ScheduleOptions {
            subject: self.flags.options(),
            limit: self.target.limit,
            slowdown: self.target.slowdown,
            run: self.execution.run,
            cluster: self.execution.cluster.clone(),
            seed: self.search.seed,
            seeds: self.search.seeds,
            effort: self.search.effort,
        }
    }
}

impl ExecutionFlags {
    pub(super) fn all(&self) -> [Flag; 2] {
        [("--run", self.run), ("--cluster", self.cluster.is_some())]
    }
}

/// A multiple of the original time.
fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| *factor >= 1.0 && factor.is_finite());
    factor.ok_or_else(|| format!("`{text}` is not a factor of 1 or more; 1.1 allows a tenth more time"))
}
