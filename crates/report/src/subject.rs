//! What pages show and comparisons compare: contents of files that the caller has read.

use edgecut_agent::{
    LinkRow,
    results::{Outcome, file::RunAbout},
};
use edgecut_graph::Graph;
use edgecut_plan::{GroupNames, Plan};
use edgecut_profile::ProfileRow;
use serde::Deserialize;

/// The content of one file, or of one folder of profiles.
#[derive(Debug, Clone)]
pub struct Subject {
    /// How the user calls it: its path.
    pub name: String,
    pub content: Content,
}

/// The content of a subject.
#[derive(Debug, Clone)]
pub enum Content {
    Profile(Vec<ProfileRow>),
    /// Measured links, next to profiles.
    Links(Vec<LinkRow>),
    Plan(Box<PlanSubject>),
    /// Pareto-optimal plans.
    Front(Vec<FrontPoint>),
    /// Results of a run.
    Results(Box<MeasuredRun>),
}

/// What one run measured.
#[derive(Debug, Clone)]
pub struct MeasuredRun {
    /// What was run, where the file says so.
    pub about: Option<RunAbout>,
    pub outcome: Outcome,
}

/// A plan, with its model where that was found.
#[derive(Debug, Clone)]
pub struct PlanSubject {
    pub plan: Plan,
    /// The graph, or why there is none.
    pub model: Result<PlannedModel, String>,
}

/// The model of a plan.
#[derive(Debug, Clone)]
pub struct PlannedModel {
    /// With the splits and schedules of the plan: the graph whose operators the plan's groups list.
    pub graph: Graph,
    /// What the groups of the model are called, by number.
    pub names: Vec<GroupNames>,
}

/// One row of a front, as `plan --pareto` writes it.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrontPoint {
    pub latency_us: f64,
    pub interval_us: f64,
    pub peak_bytes: u64,
    pub devices: usize,
    pub splits: usize,
    /// Latency of a pilot run, if it was run.
    pub measured_us: Option<f64>,
}
