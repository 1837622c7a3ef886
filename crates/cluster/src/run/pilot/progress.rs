//! Progress events of replanning and pilot runs.

use std::fmt;

use edgecut_graph::units::Micros;

/// One step of planning on agents.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanEvent {
    /// This number of shards was measured and stored in the profiles.
    ShardsMeasured(usize),
    /// An agent has too little memory left for a candidate.
    PilotRefused { agent: String, message: String },
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

impl fmt::Display for PlanEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanEvent::ShardsMeasured(count) => write!(f, "measured {count} shards, stored in the profiles"),
            PlanEvent::PilotRefused { agent, message } => write!(f, "pilot run refused: {agent}: {message}"),
            PlanEvent::PilotRun { devices, splits, is_scheduled, is_stream, time, predicted } => {
                let plural = if *devices == 1 { "" } else { "s" };
                let scheduled = if *is_scheduled { ", with schedules that need less memory" } else { "" };
                let unit = if *is_stream { " between results" } else { "" };
                write!(
                    f,
                    "pilot run on {devices} device{plural}, {splits} operators split{scheduled}: {time}{unit}, \
                     predicted {predicted}"
                )
            }
        }
    }
}
