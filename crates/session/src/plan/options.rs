//! Options of a plan.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

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
use serde::{Deserialize, Deserializer};

use super::objective::PlanObjective;
use crate::{
    Error, Model,
    model::Binding,
    option_values,
    pilot::PilotOptions,
    plan_file,
    profile::DEFAULT_BUDGET,
    request::{Like, PlanSettings},
    sharding::sharded_model,
};

/// Options of a plan.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanOptions {
    /// What to optimise: latency, throughput, memory or energy of an inference, or the time to the first token of a prompt.
    #[serde(deserialize_with = "option_values::parsed")]
    pub objective: PlanObjective,
    /// Maximum memory of each device.
    #[serde(deserialize_with = "option_values::optional_size")]
    pub memory: Option<Bytes>,
    /// Maximum latency.
    #[serde(deserialize_with = "option_values::optional_time")]
    pub latency: Option<Micros>,
    /// Minimum number of results per second.
    pub throughput: Option<f64>,
    /// Of a decoder: tokens of a prompt that the plan is judged by too.
    pub prompt: Option<u64>,
    /// Maximum time to the first token of such a prompt.
    #[serde(deserialize_with = "option_values::optional_time")]
    pub first_token: Option<Micros>,
    /// Place single operators, or fused groups.
    pub granularity: Granularity,
    /// Find all Pareto-optimal plans for latency, time between results and memory.
    pub pareto: bool,
    /// Do not split groups.
    pub no_split: bool,
    /// The shares of the devices that compute a split group.
    #[serde(deserialize_with = "option_values::parsed")]
    pub ratios: Ratios,
    /// How shards get their halos. By default, the search decides.
    #[serde(deserialize_with = "option_values::optional")]
    pub halos: Option<Halo>,
    /// A plan file. Split the same groups as this plan, over the same devices.
    pub like: Option<PathBuf>,
    /// Place and split groups by the shardings in the model's ONNX file: see [`crate::sharding`].
    pub sharded: bool,
    /// Moves of groups to another device than in the plan of `like`: `GROUP=SERVER/DEVICE`.
    #[serde(rename = "move", deserialize_with = "option_values::list")]
    pub moves: Vec<Move>,
    /// Format of activations between servers.
    pub transfer: TransferFormat,
    /// Run groups on the given device: `GROUP=SERVER/DEVICE`.
    #[serde(deserialize_with = "option_values::list")]
    pub pin: Vec<String>,
    /// Do not run groups or their shards on the given device: `GROUP=SERVER/DEVICE`.
    #[serde(deserialize_with = "option_values::list")]
    pub ban: Vec<String>,
    /// Measure nothing, and estimate what the profiles lack.
    pub estimate: bool,
    /// Number of rounds of pilot runs. By default 3, or 0 for a front.
    pub rehearse: Option<usize>,
    /// Table of measured links. By default, `links.csv` in the folder of profiles.
    pub links: Option<PathBuf>,
    /// Table of calibrations. By default, `calibration.csv` in the folder of profiles.
    pub calibration: Option<PathBuf>,
    /// Time to spend on each device to measure what the profiles lack.
    #[serde(deserialize_with = "option_values::time")]
    pub profile_budget: Micros,
    /// Time after which the search ends with the best plan so far.
    #[serde(deserialize_with = "time_limit")]
    pub time_limit: TimeLimit,
    /// Seed of the search. The same seed and budget give the same plan.
    pub seed: u64,
    /// Maximum number of placements that the search evaluates.
    pub budget: Option<u64>,
    /// Add notes to the plan on how much worse it is without each server.
    pub advise: bool,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            objective: PlanObjective::default(),
            memory: None,
            latency: None,
            throughput: None,
            prompt: None,
            first_token: None,
            granularity: Granularity::default(),
            pareto: false,
            no_split: false,
            ratios: Ratios::default(),
            halos: None,
            like: None,
            sharded: false,
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

/// Time limit of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum TimeLimit {
    /// [`TimeLimit::DEFAULT`] if agents measure or run something and no budget is given; otherwise none.
    #[default]
    Auto,
    None,
    Of(Micros),
}

impl TimeLimit {
    /// Default time limit of planning on agents.
    pub const DEFAULT: Duration = Duration::from_secs(60);
}

pub(crate) fn time_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TimeLimit, D::Error> {
    Ok(option_values::time_or_none(deserializer)?.map_or(TimeLimit::None, TimeLimit::Of))
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
    /// Checks that the options can be used together.
    ///
    /// # Errors
    /// If the options contradict each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let (is_moved, has_ratios) = (!self.moves.is_empty(), self.ratios != Ratios::default());
        let excluded = [
            ("objective=energy", self.objective == Objective::Energy.into(), "pareto", self.pareto),
            ("prompt", self.prompt.is_some(), "pareto", self.pareto),
            ("like", self.like.is_some(), "objective=first-token", self.objective == PlanObjective::FirstToken),
            ("advise", self.advise, "objective=first-token", self.objective == PlanObjective::FirstToken),
            ("prompt", self.prompt.is_some(), "move", is_moved),
            ("advise", self.advise, "pareto", self.pareto),
            ("ratios", has_ratios, "pareto", self.pareto),
            ("halos", self.halos.is_some(), "pareto", self.pareto),
            ("like", self.like.is_some(), "pareto", self.pareto),
            ("ratios", has_ratios, "no_split", self.no_split),
            ("halos", self.halos.is_some(), "no_split", self.no_split),
            ("like", self.like.is_some(), "no_split", self.no_split),
            ("halos", self.halos.is_some(), "like", self.like.is_some()),
            ("like", self.like.is_some(), "sharded", self.sharded),
            ("no_split", self.no_split, "sharded", self.sharded),
            ("ratios", has_ratios, "sharded", self.sharded),
            ("halos", self.halos.is_some(), "sharded", self.sharded),
            ("pareto", self.pareto, "sharded", self.sharded),
            ("objective=first-token", self.objective == PlanObjective::FirstToken, "sharded", self.sharded),
            ("rehearse", self.has_pilot_runs(), "estimate", self.estimate),
            ("pareto", self.pareto, "move", is_moved),
            ("advise", self.advise, "move", is_moved),
            ("pin", !self.pin.is_empty(), "move", is_moved),
            ("ban", !self.ban.is_empty(), "move", is_moved),
            ("pin", !self.pin.is_empty(), "sharded", self.sharded),
            ("ban", !self.ban.is_empty(), "sharded", self.sharded),
        ];
        if let Some((option, _, other, _)) = excluded.iter().find(|(_, is_given, _, is_other)| *is_given && *is_other) {
            let what = format!("option `{option}` has no effect with option `{other}`");
            return Err(Error::BadInput(what.into()));
        }
        if is_moved && self.like.is_none() {
            let what = "option `move` is of groups in another plan: name it with option `like`";
            return Err(Error::BadInput(what.into()));
        }
        let of_prompt = [
            ("objective=first-token", self.objective == PlanObjective::FirstToken),
            ("first_token", self.first_token.is_some()),
        ];
        if let Some((option, _)) = of_prompt.iter().find(|(_, is_given)| *is_given && self.prompt.is_none()) {
            let what = format!("option `{option}`: give the number of tokens of the prompt with option `prompt`");
            return Err(Error::BadInput(what.into()));
        }
        if self.prompt == Some(0) {
            return Err(Error::BadInput("option `prompt`: expected at least one token".into()));
        }
        if self.throughput.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return Err(Error::BadInput("option `throughput`: expected a number of results a second above 0".into()));
        }
        Ok(())
    }

    /// Time limit of planning. By default, only planning on agents that measure or run something has one.
    pub(super) fn longest(&self, on_agents: bool) -> Option<Duration> {
        match self.time_limit {
            TimeLimit::Of(limit) => Some(limit.to_duration().unwrap_or(Duration::MAX)),
            TimeLimit::None => None,
            TimeLimit::Auto => (on_agents && !self.estimate && self.budget.is_none()).then_some(TimeLimit::DEFAULT),
        }
    }

    /// The settings for a plan of `model`, on the cluster of the file `cluster`. `read` is the model itself, if there is more of it
    /// than a dump.
    pub(super) fn settings(
        &self,
        model: ModelRef,
        read: Option<&Model>,
        cluster: Option<&Path>,
    ) -> Result<PlanSettings, Error> {
        let binding = model.binding();
        let pins = self.pin.iter().map(|text| Rule::parse(RuleKind::Pin, text));
        let bans = self.ban.iter().map(|text| Rule::parse(RuleKind::Ban, text));
        Ok(PlanSettings {
            model,
            cluster: cluster.map(|path| path.display().to_string()),
            objective: self.objective.of_search(),
            targets: self.targets(),
            transfer: self.transfer,
            memory: self.memory,
            rules: pins.chain(bans).collect::<Result<_, _>>().map_err(Error::bad_input)?,
            may_split: !self.no_split,
            ratios: self.ratios,
            halo: self.halos,
            like: self.like(read, &binding)?,
            fits_memory: !self.pareto,
            search: Options { seed: self.seed, budget: self.budget, ..Options::default() },
        })
    }

    /// What the plan takes over of another one, or of the file of `model`.
    fn like(&self, model: Option<&Model>, binding: &Binding) -> Result<Option<Like>, Error> {
        if !self.sharded {
            let other = self.like.as_deref().map(|path| plan_file::for_binding(path, binding)).transpose()?;
            return Ok(other.map(|plan| Like::Plan(Box::new(plan))));
        }
        let sharded = model.map(sharded_model).transpose()?.flatten().ok_or_else(|| {
            let what = "option `sharded`: the model is not an ONNX file with a device configuration: export a plan with option `sharding`";
            Error::BadInput(what.into())
        })?;
        Ok(Some(Like::Shardings(sharded.clone())))
    }

    pub(super) fn targets(&self) -> Targets {
        Targets { latency: self.latency, throughput: self.throughput }
    }

    /// Whether pilot runs are requested.
    pub fn has_pilot_runs(&self) -> bool {
        self.rehearse.is_some_and(|rounds| rounds > 0)
    }

    /// Options for measurements and pilot runs before a plan is chosen. For a front, only its ends are run, after the
    /// search.
    pub(super) fn pilot(&self) -> PilotOptions {
        // The search for the front after its first plan needs the rest of the time.
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
