//! Progress events of replanning and pilot runs.

use std::fmt;

use edgecut_graph::units::{Bytes, Micros, counted};
use edgecut_plan::Candidate;

/// What a search has found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    pub latency: Micros,
    /// Between results.
    pub interval: Micros,
    /// What the fullest device must have.
    pub memory: Bytes,
    pub splits: usize,
    /// Placements that were evaluated.
    pub evaluations: u64,
    pub meets_targets: bool,
}

impl Progress {
    pub fn of(candidate: &Candidate) -> Progress {
        let solution = &candidate.solution;
        Progress {
            latency: solution.evaluation.latency(),
            interval: solution.interval(),
            memory: solution.reserved().max().unwrap_or_default(),
            splits: candidate.splits.len(),
            evaluations: solution.evaluations,
            meets_targets: solution.missed.is_empty(),
        }
    }
}

/// One step of planning on agents.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanEvent {
    /// A search begins.
    Searching,
    /// A search for schedules that need less memory begins.
    SearchingSchedules,
    /// A search has ended.
    Found(Progress),
    /// The measurement of a shard begins.
    MeasuringShard { name: String, number: usize, of: usize },
    /// A candidate is run.
    Running,
    /// This number of shards was measured and stored in the profiles.
    ShardsMeasured(usize),
    /// An agent has too little memory left for a candidate.
    PilotRefused { agent: String, message: String },
    /// Agents refused all candidates that were found within the time limit, which begins again.
    LimitRestarted,
    /// An agent failed: the best plan so far is given out.
    AgentFailed(String),
    /// A candidate was run.
    PilotRun {
        devices: usize,
        splits: usize,
        /// Whether devices follow schedules that need less memory.
        is_scheduled: bool,
        /// Whether times are between results of a stream, and not latencies.
        is_stream: bool,
        time: Micros,
        predicted: Micros,
    },
}

impl PlanEvent {
    /// Whether it is of interest only until the next one.
    pub fn is_transient(&self) -> bool {
        use PlanEvent::{MeasuringShard, Running, Searching, SearchingSchedules};
        matches!(self, Searching | SearchingSchedules | MeasuringShard { .. } | Running)
    }
}

impl fmt::Display for PlanEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanEvent::Searching => f.write_str("searching for a plan"),
            PlanEvent::SearchingSchedules => f.write_str("searching for schedules that need less memory"),
            PlanEvent::Found(found) => {
                let Progress { latency, interval, memory, splits, evaluations, meets_targets } = found;
                let missed = if *meets_targets { "" } else { ", short of the targets" };
                write!(
                    f,
                    "found a plan of {latency}, {interval} between results, {memory} on the fullest device, {splits} \
                     operators split{missed} ({evaluations} evaluations)"
                )
            }
            PlanEvent::MeasuringShard { name, number, of } => write!(f, "measuring shard {number} of {of}: {name}"),
            PlanEvent::Running => f.write_str("running a plan"),
            PlanEvent::ShardsMeasured(count) => write!(f, "measured {count} shards, stored in the profiles"),
            PlanEvent::PilotRefused { agent, message } => write!(f, "pilot run refused: {agent}: {message}"),
            PlanEvent::LimitRestarted => f.write_str(
                "time limit reached, and agents refused all plans: the search for another takes at most as long again",
            ),
            PlanEvent::AgentFailed(why) => write!(f, "giving out the best plan so far: {why}"),
            PlanEvent::PilotRun { devices, splits, is_scheduled, is_stream, time, predicted } => {
                let devices = counted(*devices, "device");
                let scheduled = if *is_scheduled { ", with schedules that need less memory" } else { "" };
                let unit = if *is_stream { " between results" } else { "" };
                write!(
                    f,
                    "pilot run on {devices}, {splits} operators split{scheduled}: {time}{unit}, \
                     predicted {predicted}"
                )
            }
        }
    }
}
