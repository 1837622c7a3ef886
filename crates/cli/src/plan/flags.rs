//! The flags of `edgecut plan`, as options of a plan.

use std::path::PathBuf;

use edgecut_graph::units::{Bytes, Micros};
use edgecut_plan::{
    TransferFormat,
    moved::Move,
    split::{Halo, Ratios},
};
use edgecut_session::{
    PlanOptions,
    plan::{objective::PlanObjective, options::TimeLimit},
};

use crate::{
    cluster_flag::{ClusterFlag, ThreadsFlag},
    engine::EngineFlags,
    format::Format,
    ineffective::Flag,
    model::ModelFlags,
    profile::GranularityFlag,
};

/// Plan where the operators of a model run, under memory and latency targets.
#[derive(clap::Args)]
pub struct Plan {
    /// An ONNX file, Relay text, a decoder's folder, or a graph dump of TVM's debug executor
    pub(super) model: PathBuf,

    #[command(flatten)]
    pub(super) flags: ModelFlags,

    #[command(flatten)]
    pub(super) cluster: ClusterFlag,

    /// latency, throughput, memory, energy, first-token
    ///
    /// The latency of one input, the largest load of a device or link, the fullest device's memory, or what one run consumes:
    /// all devices' idle power, and what computing takes above it (see docs/cluster.md). For a decoder, they apply to one
    /// generated token. first-token is the time to the first token (TTFT) after a prompt of --prompt tokens.
    #[arg(long, help_heading = "Targets", default_value = "latency")]
    pub(super) objective: PlanObjective,

    /// No device may need more than this
    #[arg(long, help_heading = "Targets", value_name = "SIZE", value_parser = Bytes::with_unit)]
    pub(super) memory: Option<Bytes>,

    /// The plan must be at least as fast as this
    #[arg(long, help_heading = "Targets", value_name = "TIME")]
    pub(super) latency: Option<Micros>,

    /// The predicted time to the first token (TTFT) may be at most this, after a prompt of --prompt tokens
    ///
    /// If the best plan for a token misses it, the plan that is best for the prompt is tried.
    #[arg(long, hide_short_help = true, help_heading = "Targets", value_name = "TIME", requires = "prompt")]
    pub(super) first_token: Option<Micros>,

    /// The plan must give at least this number of results a second
    #[arg(long, help_heading = "Targets", value_name = "PER_SECOND", value_parser = rate)]
    pub(super) throughput: Option<f64>,

    /// Place single operators (op), or fused groups
    #[arg(
        long,
        hide_short_help = true,
        hide_possible_values = true,
        help_heading = "Placement",
        value_enum,
        default_value = "fused"
    )]
    pub(super) granularity: GranularityFlag,

    /// Print all plans that no other beats in latency, interval and memory
    ///
    /// With --rehearse, the fastest plan and the one with the smallest peak memory are run. If the search was stopped early, a
    /// message says so.
    #[arg(long, conflicts_with = "advise", help_heading = "Targets")]
    pub(super) pareto: bool,

    /// Split no group over several devices
    #[arg(long, help_heading = "Placement")]
    pub(super) no_split: bool,

    /// The shares of devices in a split group: tuned, equal or proportional
    ///
    /// Equal shares, and shares in proportion to the devices' speed, are for comparison.
    #[arg(long, hide_short_help = true, help_heading = "Placement", value_name = "RULE", default_value = "tuned", conflicts_with_all = ["no_split", "pareto"])]
    pub(super) ratios: Ratios,

    /// How shards get what they read of their neighbours' shares: exchanged or recomputed [default: what is best]
    ///
    /// Exchanged halos are sent, recomputed ones are computed by the shard itself (fused tiles); by default the plan has both. For
    /// comparison.
    #[arg(long, hide_short_help = true, help_heading = "Placement", value_name = "HOW", conflicts_with_all = ["no_split", "pareto", "like"])]
    pub(super) halos: Option<Halo>,

    /// Split what another plan splits, over the same devices
    ///
    /// In the ratio of --ratios.
    #[arg(long, hide_short_help = true, help_heading = "Placement", value_name = "PLAN", conflicts_with_all = ["no_split", "pareto"])]
    pub(super) like: Option<PathBuf>,

    /// Place and split groups by the shardings in the model's ONNX file
    ///
    /// The file is from `export --format onnx --sharding` or another tool. The devices of its configuration are named as in the
    /// cluster; without names, they are the first of the cluster. Groups without shardings are not split. See docs/formats.md.
    #[arg(long, hide_short_help = true, help_heading = "Placement", conflicts_with_all = ["no_split", "pareto", "ratios", "halos", "like", "moves", "pin", "ban"])]
    pub(super) sharded: bool,

    /// What would another plan gain or lose with a group on another device?
    ///
    /// All else stays as in the plan of --like: nothing is searched, and no plan is written without --output. Says of
    /// latency, memory and transfers what they are before and after.
    #[arg(long = "move", hide_short_help = true, help_heading = "Placement", value_name = "GROUP=SERVER/DEVICE", requires = "like", conflicts_with_all = ["pareto", "advise", "pin", "ban", "ratios", "rehearse", "objective", "latency", "throughput", "time_limit", "seed", "budget"])]
    pub(super) moves: Vec<Move>,

    /// Format of activations between servers: exact, f16 or int8 [default: exact]
    ///
    /// f16 halves what is sent, int8 quarters it, and both change the model's outputs: `edgecut run` says by how much. Only float32
    /// activations are converted; the model's inputs and outputs, other types, and what stays on a server are not. With
    /// --move: that of the plan.
    #[arg(long, hide_short_help = true, help_heading = "Placement", value_name = "FORMAT", conflicts_with = "moves")]
    pub(super) transfer: Option<TransferFormat>,

    /// Run groups on one device
    ///
    /// GROUP is a number (`#7`), the name of an operator or layer (`nn.conv2d_9`, `conv0`), what groups compute
    /// (`nn.conv2d`), or a pattern of such names (`*` and `?` as in file names).
    #[arg(long, help_heading = "Placement", value_name = "GROUP=SERVER/DEVICE")]
    pub(super) pin: Vec<String>,

    /// Keep groups and their shards off one device
    #[arg(long, help_heading = "Placement", value_name = "GROUP=SERVER/DEVICE", hide_short_help = true)]
    pub(super) ban: Vec<String>,

    #[command(flatten)]
    pub(super) threads: ThreadsFlag,

    #[command(flatten)]
    pub(super) engine: EngineFlags,

    /// Folder of profiles, or a file for each device
    ///
    /// A file is FILE[=SERVER/DEVICE], the device if it is another one than in the file. What a folder lacks is measured. With files nothing is measured: CSV of `edgecut profile` or of EOP, an execution
    /// trace of TVM's debug executor.
    #[arg(long, value_name = "SOURCE", help_heading = "Profiles", default_value = "profiles")]
    pub(super) profile: Vec<PathBuf>,

    /// Measure nothing: estimate what the profiles lack
    ///
    /// From everything that was measured on the same devices.
    #[arg(long, help_heading = "Profiles")]
    pub(super) estimate: bool,

    /// Rounds of pilot runs [default: 3, with --pareto 0]; 0 runs no plans
    ///
    /// Each round runs plans on the agents, measures operators and transfers in context, and plans again with these
    /// costs. In the end the best plans take turns, and the best of them is the result: one for a single device unless
    /// a second device gains 3 %.
    #[arg(long, value_name = "N", help_heading = "Profiles")]
    pub(super) rehearse: Option<usize>,

    /// Where measured links are kept; links.csv among the profiles if not given
    #[arg(long, hide_short_help = true, help_heading = "Profiles", value_name = "FILE")]
    pub(super) links: Option<PathBuf>,

    /// Calibrations to use; calibration.csv among the profiles if not given
    #[arg(long, hide_short_help = true, help_heading = "Profiles", value_name = "FILE")]
    pub(super) calibration: Option<PathBuf>,

    /// Time to spend on measuring, on each device, if that is needed
    #[arg(long, hide_short_help = true, help_heading = "Profiles", value_name = "TIME", default_value = "20s")]
    pub(super) profile_budget: Micros,

    /// Stop the search after this time with the best plan so far, or `none` [default: 60s]
    ///
    /// Ctrl-C does so too. Counts from when the profiles are complete; measurements and runs that have begun end first. With
    /// --budget, or where nothing is measured or run, there is no limit unless one is given. Where agents refuse all plans for
    /// lack of memory, the search for another takes at most as long again.
    #[arg(long, value_name = "TIME", help_heading = "Profiles")]
    pub(super) time_limit: Option<TimeLimit>,

    /// The same seed and budget give the same plan
    #[arg(long, value_name = "N", hide_short_help = true, help_heading = "Search", default_value_t = 0)]
    pub(super) seed: u64,

    /// Number of placements that may be evaluated
    #[arg(long, hide_short_help = true, help_heading = "Search", value_name = "N")]
    pub(super) budget: Option<u64>,

    /// Also report how much worse the plan is without each server
    ///
    /// Of the servers that the plan uses, but for those of the source and the sink.
    #[arg(long, help_heading = "Output")]
    pub(super) advise: bool,

    /// Also print which strategies were tried, and what each found
    ///
    /// In the order in which they were tried: the value of the plan that each found or what it misses, and the placements
    /// that it evaluated.
    #[arg(long, hide_short_help = true, help_heading = "Output", conflicts_with_all = ["pareto", "moves"])]
    pub(super) explain: bool,

    /// Where the plan goes, as .json and .csv [default: plan.json]
    ///
    /// Plans for several bindings (see --bind-dim) go into one file.
    /// With --pareto: a CSV file for the front, or a folder for the front and its plans.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) output: Option<PathBuf>,

    /// How to print the plan: table, csv or json
    #[arg(long, value_enum, hide_possible_values = true, default_value_t, help_heading = "Output")]
    pub(super) format: Format,
}

impl Plan {
    /// These flags as options.
    pub(super) fn options(&self) -> PlanOptions {
        PlanOptions {
            objective: self.objective,
            memory: self.memory,
            latency: self.latency,
            throughput: self.throughput,
            prompt: self.flags.prompt,
            first_token: self.first_token,
            granularity: self.granularity.into(),
            pareto: self.pareto,
            no_split: self.no_split,
            ratios: self.ratios,
            halos: self.halos,
            like: self.like.clone(),
            sharded: self.sharded,
            moves: self.moves.clone(),
            transfer: self.transfer.unwrap_or_default(),
            pin: self.pin.clone(),
            ban: self.ban.clone(),
            estimate: self.estimate,
            rehearse: self.rehearse,
            links: self.links.clone(),
            calibration: self.calibration.clone(),
            profile_budget: self.profile_budget,
            time_limit: self.time_limit.unwrap_or_default(),
            seed: self.seed,
            budget: self.budget,
            advise: self.advise,
        }
    }

    /// The flags on what is measured and run, and whether each was given.
    pub(super) fn measuring_flags(&self) -> [Flag; 4] {
        [
            ("--threads", self.threads.threads.is_some()),
            ("--engine", self.engine.engine.is_some()),
            ("--estimate", self.estimate),
            ("--rehearse", self.options().has_pilot_runs()),
        ]
    }
}

/// Reads how many results a second are wanted.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && rate.is_finite());
    rate.ok_or_else(|| format!("`{text}` is not a number of results a second: expected one above 0, such as 30"))
}
