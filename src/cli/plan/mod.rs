//! `edgecut plan`: where each group of operators runs, in which order, and what that costs.

mod finish;
mod given;
mod like;
mod model;
mod print;
mod rehearse;
mod rules;
mod settle;
mod workload;

use std::path::{Path, PathBuf};

use miette::Report;

use super::{
    Failure, Outcome,
    cluster::{ClusterFlag, ThreadsFlag},
    file,
    format::Format,
    given::{is_debug_dump, is_dump},
    model::ModelFlags,
    profile::GranularityFlag,
};
use crate::{
    plan::{problem::Objective, split::Ratios},
    units::{Bytes, Micros},
};

/// Plan where the operators of a model run, under memory and latency targets.
#[derive(clap::Args)]
pub struct Plan {
    /// Relay text, as TVM's `mod.astext()` prints it, or a graph dump of TVM's debug executor
    model: Option<PathBuf>,

    #[command(flatten)]
    flags: ModelFlags,

    /// Plan a device-placement workload (JSON) instead of a model, under its own cost model; or a graph dump of TVM's
    /// debug executor, with the execution trace beside it
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    workload: Option<PathBuf>,

    #[command(flatten)]
    cluster: ClusterFlag,

    /// What to make as small as possible: latency, throughput (the largest load) or memory (the fullest device)
    #[arg(long, default_value = "latency")]
    objective: Objective,

    /// No device may need more than this
    #[arg(long, value_name = "SIZE", value_parser = Bytes::with_unit)]
    memory: Option<Bytes>,

    /// The plan must be at least as fast as this
    #[arg(long, value_name = "TIME")]
    latency: Option<Micros>,

    /// The plan must give at least this many results a second
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    throughput: Option<f64>,

    /// Place each operator by itself, or what TVM's fusion rules would compile into one kernel
    #[arg(long, value_enum, default_value = "fused")]
    granularity: GranularityFlag,

    /// Also say what the plan would be without each server that it uses, source and sink apart
    #[arg(long)]
    advise: bool,

    /// Print, instead of one plan, those of which none is beaten in latency, time between results and memory at once
    #[arg(long, conflicts_with = "advise")]
    pareto: bool,

    /// Keep every group whole: do not split any over several devices
    #[arg(long)]
    no_split: bool,

    /// In which ratio devices share a split group: tuned; or, to compare with, equal or proportional to their speed
    #[arg(long, value_name = "RULE", default_value = "tuned", conflicts_with_all = ["no_split", "pareto"])]
    ratios: Ratios,

    /// Split what this plan splits, over the same devices, in the ratio that --ratios says
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["no_split", "pareto"])]
    like: Option<PathBuf>,

    /// Run the groups whose name, or one of whose operators, fits PATTERN (`*` and `?` as in file names) on one device
    #[arg(long, value_name = "PATTERN=SERVER/DEVICE")]
    pin: Vec<String>,

    /// Keep such groups, and their shards, off one device
    #[arg(long, value_name = "PATTERN=SERVER/DEVICE")]
    ban: Vec<String>,

    #[command(flatten)]
    threads: ThreadsFlag,

    /// Folder of profiles; what is missing there is measured. Or profiles themselves, one a device, of which nothing is
    /// measured: CSV of `edgecut profile` or of EOP, an execution trace of TVM's debug executor
    #[arg(long, value_name = "DIR|FILE[=SERVER/DEVICE]", default_value = "profiles")]
    profile: Vec<String>,

    /// Measure nothing: estimate what the model's profiles lack from all that was measured on the same devices
    #[arg(long)]
    estimate: bool,

    /// Rounds of rehearsal, 3 if not given: each runs plans on the agents, to learn what operators and transfers take in
    /// their places, and plans anew by that. In the end the best plans that were run take turns, and the best of them is
    /// given out: one for a single device unless a second one gains 3 %. 0 to plan by profiles alone
    #[arg(long, value_name = "N")]
    rehearse: Option<usize>,

    /// Where measured links are kept; links.csv among the profiles if not given
    #[arg(long, value_name = "FILE")]
    links: Option<PathBuf>,

    /// Time to spend on measuring, on each device, if that is needed
    #[arg(long, value_name = "TIME", default_value = "20s")]
    profile_budget: Micros,

    /// Seed of the searches: the same seed and budget give the same plan
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// How many placements may be evaluated
    #[arg(long, value_name = "N")]
    budget: Option<u64>,

    /// Where the plan goes, plan.json if not given; the same as a table goes beside it, as .csv. With --pareto: a CSV
    /// file for the front, or a folder for the front and its plans
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// What to print: the plan for people, its rows, or the plan file
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Reads how many results a second are wanted.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && rate.is_finite());
    rate.ok_or_else(|| format!("`{text}` is no number of results a second: expected one above 0, such as 30"))
}

impl Plan {
    pub fn run(self) -> Outcome {
        if self.is_to_be_rehearsed() && (self.pareto || self.estimate) {
            let (flag, why) = match self.pareto {
                true => ("--pareto", "the plans of a front are not run"),
                false => ("--estimate", "then nothing is run"),
            };
            let what = format!("--rehearse says nothing with {flag}: {why}; leave one of them out");
            return Err(Failure::BadInput(Report::msg(what)));
        }
        let default = self.workload.is_none().then_some(Path::new(finish::DEFAULT_OUTPUT));
        if let (false, Some(path)) = (self.pareto, self.output.as_deref().or(default)) {
            file::check_place(path)?;
        }
        match (&self.workload, &self.model) {
            (Some(path), _) if is_debug_dump(path) => given::run(&self, path),
            (Some(path), _) => workload::run(&self, path),
            (None, Some(path)) if is_dump(path) || given::is_given(&self) => given::run(&self, path),
            (None, _) => model::run(&self),
        }
    }

    /// Whether rehearsals were asked for.
    fn is_to_be_rehearsed(&self) -> bool {
        self.rehearse.is_some_and(|rounds| rounds > 0)
    }

    /// Of the flags on what is measured and run, and of `others`, those that were given.
    fn idle(&self, others: &[(&'static str, bool)]) -> Vec<&'static str> {
        let own = [
            ("--threads", self.threads.threads.is_some()),
            ("--estimate", self.estimate),
            ("--rehearse", self.is_to_be_rehearsed()),
        ];
        others.iter().chain(&own).filter(|(_, is_given)| *is_given).map(|(flag, _)| *flag).collect()
    }
}
