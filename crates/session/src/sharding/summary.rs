//! Summary of each device configuration, for `inspect`.

use edgecut_onnx::{DeviceConfiguration, NodeSharding, ShardedModel};
use serde::Serialize;

/// What a file states for one device configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShardingSummary {
    pub configuration: String,
    pub devices: usize,
    /// The names of the devices; empty if the file has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// ONNX operators that the file states something of, and those of them with a sharded tensor.
    pub operators: usize,
    pub sharded: usize,
    pub stages: u32,
}

impl ShardingSummary {
    /// Of each configuration of `model`.
    pub fn of(model: &ShardedModel) -> Vec<ShardingSummary> {
        let summary = |(index, one): (usize, &DeviceConfiguration)| {
            let entries = || model.entries.iter().filter(move |entry| entry.configuration == index);
            let is_sharded = |entry: &&NodeSharding| entry.tensors.iter().any(|tensor| tensor.shards.len() > 1);
            ShardingSummary {
                configuration: one.name.clone(),
                devices: one.devices,
                names: one.names.clone(),
                operators: entries().count(),
                sharded: entries().filter(is_sharded).count(),
                stages: entries().filter_map(|entry| entry.stage).max().map_or(0, |last| last.saturating_add(1)),
            }
        };
        model.configurations.iter().enumerate().map(summary).collect()
    }
}

impl std::fmt::Display for ShardingSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ShardingSummary { configuration, devices, names, operators, sharded, stages } = self;
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        write!(
            f,
            "`{configuration}`: {devices} devices{names}, {operators} operators placed, {sharded} sharded, {stages} pipeline stages"
        )
    }
}
