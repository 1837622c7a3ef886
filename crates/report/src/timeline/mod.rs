//! What ran when, and how much was used: spans and counters on tracks, for trace viewers.
//!
//! | module | what it does |
//! |---|---|
//! | `chrome` | the trace event format: JSON, for Perfetto and `chrome://tracing` |
//! | [`perfetto`] | Perfetto's TrackEvent: protobuf |
//! | [`run`] | a plan and its run, predicted and measured |
//! | [`memory`] | a memory layout over the operators |

pub(crate) mod chrome;
pub mod memory;
pub mod perfetto;
pub mod run;

use edgecut_graph::units::Micros;

/// Tracks, grouped.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    pub groups: Vec<TrackGroup>,
}

/// The tracks of one thing, such as a device or a link; what viewers call a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrackGroup {
    pub name: String,
    pub tracks: Vec<Track>,
}

/// One line of a viewer.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    pub name: String,
    pub content: TrackContent,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TrackContent {
    Spans(Vec<Span>),
    Counter {
        unit: CounterUnit,
        /// Each value holds from its instant to that of the next, in order.
        points: Vec<(Micros, f64)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterUnit {
    Bytes,
    BytesPerSecond,
}

/// Something with a duration.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub name: String,
    pub start: Micros,
    pub time: Micros,
    /// What a viewer shows of it when it is chosen.
    pub details: Vec<(&'static str, Detail)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    Number(u64),
    Text(String),
}

impl TrackGroup {
    /// Adds a track, unless it would be empty.
    pub fn push(&mut self, name: &str, content: TrackContent) {
        let is_empty = match &content {
            TrackContent::Spans(spans) => spans.is_empty(),
            TrackContent::Counter { points, .. } => points.is_empty(),
        };
        if !is_empty {
            self.tracks.push(Track { name: name.to_string(), content });
        }
    }
}
