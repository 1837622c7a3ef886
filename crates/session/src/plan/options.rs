//! What is asked of a plan.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use edgecut_cluster::run::{pilot::PilotOptions, request::PlanSettings};
use edgecut_graph::{
    Granularity,
    units::{Bytes, Micros},
};
use edgecut_plan::{
    TransferFormat,
    file::ModelRef,
    moved::Move,
    problem::{Objective, Targets},
    rule::{Rule, RuleKind},
    search::Options,
    split::{Halo, Ratios},
};
use serde::Deserialize;

use crate::{Error, option_values, plan_file, profile::DEFAULT_BUDGET};

/// What is asked of a plan.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanOptions {
    /// What is improved: latency, throughput, memory or energy.
    pub objective: Objective,
    /// No device may need more than this.
    #[serde(deserialize_with = "option_values::optional_size")]
    pub memory: Option<Bytes>,
    /// The plan must be at least as fast as this.
    #[serde(deserialize_with = "option_values::optional_time")]
    pub latency: Option<Micros>,
    /// The plan must give at least this number of results a second.
    pub throughput: Option<f64>,
    /// Single operators are placed, or fused groups.
    pub granularity: Granularity,
    /// Find all plans that no other beats in latency, interval and memory.
    pub pareto: bool,
    /// Split no group over several devices.
    pub no_split: bool,
    /// The shares of devices in a split group.
    #[serde(deserialize_with = "option_values::parsed")]
    pub ratios: Ratios,
    /// How shards get what they read of their neighbours' shares; what is best if not given.
    #[serde(deserialize_with = "option_values::optional")]
    pub halos: Option<Halo>,
    /// A plan file: split what it splits, over the same devices.
    pub like: Option<PathBuf>,
    /// Groups on another device than in the plan of `like`: `GROUP=SERVER/DEVICE`.
    #[serde(rename = "move", deserialize_with = "option_values::list")]
    pub moves: Vec<Move>,
    /// Format of activations between servers.
    pub transfer: TransferFormat,
    /// Run groups on one device: `GROUP=SERVER/DEVICE`.
    #[serde(deserialize_with = "option_values::list")]
    pub pin: Vec<String>,
    /// Keep groups and their shards off one device: `GROUP=SERVER/DEVICE`.
    #[serde(deserialize_with = "option_values::list")]
    pub ban: Vec<String>,
    /// Measure nothing: estimate what the profiles lack.
    pub estimate: bool,
    /// Rounds of pilot runs; 3 if not given, of a front 0.
    pub rehearse: Option<usize>,
    /// Where measured links are kept; `links.csv` among the profiles if not given.
    pub links: Option<PathBuf>,
    /// Calibrations to use; `calibration.csv` among the profiles if not given.
    pub calibration: Option<PathBuf>,
    /// Time to spend on measuring, on each device, if that is needed.
    #[serde(deserialize_with = "option_values::time")]
    pub profile_budget: Micros,
    /// After what time the search ends with the best plan so far.
    #[serde(deserialize_with = "option_values::parsed")]
    pub time_limit: TimeLimit,
    /// The same seed and budget give the same plan.
    pub seed: u64,
    /// Number of placements that may be evaluated.
    pub budget: Option<u64>,
    /// Note how much worse the plan is without each server.
    pub advise: bool,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            objective: Objective::default(),
            memory: None,
            latency: None,
            throughput: None,
            granularity: Granularity::default(),
            pareto: false,
            no_split: false,
            ratios: Ratios::default(),
            halos: None,
            like: None,
            moves: Vec::new(),
            transfer: TransferFormat::default(),
            pin: Vec::new(),
            ban: Vec::new(),
            estimate: false,
            rehearse: None,
            links: None,
            calibration: None,
            profile_budget: DEFAULT_BUDGET,
            time_limit: TimeLimit::default(),
            seed: 0,
            budget: None,
            advise: false,
        }
    }
}

/// How long a search may take.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum TimeLimit {
    /// [`TimeLimit::PATIENCE`] where agents measure or run something and no budget is given, else none.
    #[default]
    Default,
    None,
    Of(Micros),
}

impl TimeLimit {
    /// How long planning on agents takes at most unless something else is asked for: a time that a person waits.
    pub const PATIENCE: Duration = Duration::from_secs(60);
}

impl FromStr for TimeLimit {
    type Err = String;

    /// `none`, or a time.
    fn from_str(text: &str) -> Result<TimeLimit, String> {
        match text {
            "none" => Ok(TimeLimit::None),
            time => time.parse().map(TimeLimit::Of).map_err(|error| format!("{error}, or `none`")),
        }
    }
}

impl PlanOptions {
    /// # Errors
    /// If options exclude each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.pareto && self.objective == Objective::Energy {
            let what = "option `objective=energy` has no effect with option `pareto`: a front is of latency, time between \
                        results and memory";
            return Err(Error::BadInput(what.into()));
        }
        if self.has_pilot_runs() && self.estimate {
            let what = "option `rehearse` has no effect with option `estimate`: then nothing is run";
            return Err(Error::BadInput(what.into()));
        }
        if self.throughput.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return Err(Error::BadInput("option `throughput`: expected a number of results a second above 0".into()));
        }
        Ok(())
    }

    /// The longest time that planning may take; on agents that measure or run something there is one unless it is refused.
    pub(super) fn longest(&self, on_agents: bool) -> Option<Duration> {
        match self.time_limit {
            TimeLimit::Of(limit) => Some(limit.to_duration().unwrap_or(Duration::MAX)),
            TimeLimit::None => None,
            TimeLimit::Default => (on_agents && !self.estimate && self.budget.is_none()).then_some(TimeLimit::PATIENCE),
        }
    }

    /// What is wanted of a plan of `model`, on the cluster of the file `cluster`.
    pub(super) fn settings(&self, model: ModelRef, cluster: Option<&Path>) -> Result<PlanSettings, Error> {
        let binding = model.binding();
        let pins = self.pin.iter().map(|text| Rule::parse(RuleKind::Pin, text));
        let bans = self.ban.iter().map(|text| Rule::parse(RuleKind::Ban, text));
        Ok(PlanSettings {
            model,
            cluster: cluster.map(|path| path.display().to_string()),
            objective: self.objective,
            targets: self.targets(),
            transfer: self.transfer,
            memory: self.memory,
            rules: pins.chain(bans).collect::<Result<_, _>>().map_err(Error::bad_input)?,
            may_split: !self.no_split,
            ratios: self.ratios,
            halo: self.halos,
            like: self.like.as_deref().map(|path| plan_file::of_binding(path, &binding)).transpose()?,
            fits_memory: !self.pareto,
            search: Options { seed: self.seed, budget: self.budget, ..Options::default() },
        })
    }

    pub(super) fn targets(&self) -> Targets {
        Targets { latency: self.latency, throughput: self.throughput }
    }

    /// Whether pilot runs are asked for.
    pub fn has_pilot_runs(&self) -> bool {
        self.rehearse.is_some_and(|rounds| rounds > 0)
    }

    /// What is measured and run beyond profiles before a plan is chosen. Of a front only the ends are run, later.
    pub(super) fn pilot(&self) -> PilotOptions {
        // What follows a front's first plan needs the rest of the time.
        let search_share = if self.pareto { 0.25 } else { 1.0 };
        match (self.estimate, self.pareto, self.rehearse) {
            (true, ..) => PilotOptions { search_share, ..PilotOptions::estimates_only() },
            (false, true, _) => PilotOptions { search_share, ..PilotOptions::none() },
            (false, false, None) => PilotOptions::default(),
            (false, false, Some(0)) => PilotOptions::none(),
            (false, false, Some(rounds)) => PilotOptions { rounds, ..PilotOptions::default() },
        }
    }
}
