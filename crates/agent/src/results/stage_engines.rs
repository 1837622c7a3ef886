//! Which engines computed the stages of a run: where engines are chosen stage by stage, and where one fell back.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::record::Record;

/// The stages of one device that one engine computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageEngines {
    /// `server/device`.
    pub device: String,
    /// Name and version; empty for the engine that the plan names.
    pub engine: String,
    pub stages: u32,
    /// How many of their operators another engine computed, because this one cannot.
    pub fallbacks: u32,
}

impl fmt::Display for StageEngines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StageEngines { device, engine, stages, fallbacks } = self;
        let count = if *stages == 1 { "1 stage".to_string() } else { format!("{stages} stages") };
        let engine = if engine.is_empty() { "its engine" } else { engine };
        write!(f, "{device}: {count} on {engine}")?;
        match fallbacks {
            0 => Ok(()),
            1 => f.write_str(" (1 operator on tract)"),
            count => write!(f, " ({count} operators on tract)"),
        }
    }
}

/// From the traces of the first inference; stages that the planned engine alone computed are left out.
pub(super) fn stage_engines(record: &Record) -> Vec<StageEngines> {
    let mut found: BTreeMap<(String, String), (u32, u32)> = BTreeMap::new();
    for (server, measured) in &record.measured {
        for stage in measured.first().into_iter().flat_map(|trace| &trace.stages) {
            if !stage.engine.is_empty() || stage.fallbacks > 0 {
                let entry = found.entry((format!("{server}/{}", stage.device), stage.engine.to_string())).or_default();
                *entry = (entry.0 + 1, entry.1.saturating_add(stage.fallbacks));
            }
        }
    }
    let found = found.into_iter();
    found.map(|((device, engine), (stages, fallbacks))| StageEngines { device, engine, stages, fallbacks }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::inference_trace::{InferenceTrace, StageTime};
    use edgecut_graph::units::Micros;

    #[test]
    fn stages_are_counted_by_device_and_engine() {
        let stage = |index: u32, engine: &str, fallbacks: u32| StageTime {
            device: "cpu".into(),
            stage: index,
            ready: Micros::ZERO,
            start: Micros::ZERO,
            end: Micros::ZERO,
            steps: Vec::new(),
            engine: engine.into(),
            fallbacks,
        };
        let stages =
            vec![stage(0, "tract 1", 0), stage(1, "onnxruntime 2", 1), stage(2, "tract 1", 0), stage(3, "", 0)];
        let trace = InferenceTrace { stages, ..InferenceTrace::default() };
        let record = Record {
            sink_values: vec![],
            latencies: vec![],
            arrivals: vec![],
            measured: [("one".into(), vec![trace])].into(),
            clocks: BTreeMap::new(),
        };
        let lines: Vec<String> = stage_engines(&record).iter().map(StageEngines::to_string).collect();
        assert_eq!(lines, ["one/cpu: 1 stage on onnxruntime 2 (1 operator on tract)", "one/cpu: 2 stages on tract 1"]);
    }
}
