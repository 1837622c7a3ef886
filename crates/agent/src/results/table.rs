//! A run as rows, which join those of the plan and of the profile: groups, transfers, devices, servers that report energy,
//! and last the latency.

use serde::Serialize;

use edgecut_graph::units::Bytes;
use edgecut_plan::TransferFormat;

use super::{
    energy::ServerEnergy,
    outcome::{GroupTime, MemoryUse, Outcome, Scatter, TransferCost},
};

/// One row of a run. Cells that a kind of row does not have are empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RunRow {
    pub kind: RunRowKind,
    /// The number of the group or of the transferred tensor in the model.
    pub id: Option<u32>,
    pub name: String,
    /// Where it ran, or came from.
    pub server: String,
    pub device: String,
    /// The receiver of a transfer.
    pub to_server: String,
    pub to_device: String,
    pub predicted_us: Option<f64>,
    /// Median over the runs.
    pub measured_us: Option<f64>,
    /// Of the transferred tensor.
    pub bytes: Option<u64>,
    /// Which part of the group or the tensor it is; empty for all of it.
    pub part: String,
    pub layer: String,
    /// Runs behind the times.
    pub n: Option<usize>,
    pub mad_us: Option<f64>,
    pub min_us: Option<f64>,
    pub p95_us: Option<f64>,
    pub max_us: Option<f64>,
    /// What a transfer waited for the link.
    pub waited_us: Option<f64>,
    /// Of a group.
    pub predicted_workspace_bytes: Option<u64>,
    pub workspace_bytes: Option<u64>,
    /// Peak memory of a device while it runs.
    pub predicted_load_bytes: Option<u64>,
    pub peak_bytes: Option<u64>,
    pub predicted_arena_bytes: Option<u64>,
    pub predicted_parameter_bytes: Option<u64>,
    pub parameter_bytes: Option<u64>,
    pub loading_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    /// How a transfer was sent, and what was sent for it.
    pub format: Option<TransferFormat>,
    pub sent_bytes: Option<u64>,
    /// Of the outputs, on the row of the latency: how far they are from those of one device.
    pub largest_error: Option<f64>,
    pub mean_error: Option<f64>,
    pub largest_relative_error: Option<f64>,
    pub mean_relative_error: Option<f64>,
    /// Of one inference: of a group above what the idle device draws; of a server, and on the row of the latency of all
    /// devices, with that.
    pub predicted_energy_j: Option<f64>,
    /// Of a server for one inference.
    pub measured_energy_j: Option<f64>,
}

/// What a row describes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunRowKind {
    /// One inference; only in files of results.
    Inference,
    Group,
    Transfer,
    Device,
    /// One that reports energy.
    Server,
    #[default]
    Latency,
}

/// The rows of `outcome`.
pub fn rows(outcome: &Outcome) -> Vec<RunRow> {
    let latency = &outcome.latency;
    let scatter = Scatter {
        n: latency.n,
        mad_us: latency.mad_us,
        min_us: latency.min_us,
        p95_us: latency.p95_us,
        max_us: latency.max_us,
    };
    let whole = RunRow {
        predicted_us: Some(outcome.predicted_latency_us.0),
        measured_us: Some(latency.median_us.0),
        largest_error: outcome.outputs.map(|outputs| outputs.largest),
        mean_error: outcome.outputs.map(|outputs| outputs.mean),
        largest_relative_error: outcome.outputs.map(|outputs| outputs.largest_relative),
        mean_relative_error: outcome.outputs.map(|outputs| outputs.mean_relative),
        predicted_energy_j: outcome.predicted_energy_j.map(|energy| energy.0),
        ..RunRow::default()
    };
    let groups = outcome.groups.iter().map(group);
    let rows = groups.chain(outcome.transfers.iter().map(transfer)).chain(outcome.memory.iter().map(device));
    rows.chain(outcome.energy.iter().map(server)).chain([whole.with(&scatter)]).collect()
}

impl RunRow {
    fn with(self, scatter: &Scatter) -> RunRow {
        let of = |time: f64| (scatter.n > 0).then_some(time);
        RunRow {
            n: Some(scatter.n),
            mad_us: of(scatter.mad_us.0),
            min_us: of(scatter.min_us.0),
            p95_us: of(scatter.p95_us.0),
            max_us: of(scatter.max_us.0),
            ..self
        }
    }
}

/// `one/cpu` as server and device.
fn split_device_name(full: &str) -> (String, String) {
    let (server, device) = full.rsplit_once('/').unwrap_or((full, ""));
    (server.to_string(), device.to_string())
}

fn group(time: &GroupTime) -> RunRow {
    let (server, device) = split_device_name(&time.device);
    let row = RunRow {
        kind: RunRowKind::Group,
        id: time.id,
        part: time.part.clone(),
        name: time.name.clone(),
        layer: time.layer.clone(),
        server,
        device,
        predicted_us: Some(time.predicted_us.0),
        measured_us: Some(time.measured_us.0),
        predicted_workspace_bytes: Some(time.predicted_workspace_bytes.0),
        workspace_bytes: Some(time.workspace_bytes.0),
        predicted_energy_j: time.predicted_energy_j.map(|energy| energy.0),
        ..RunRow::default()
    };
    row.with(&time.scatter)
}

fn transfer(cost: &TransferCost) -> RunRow {
    let row = RunRow {
        kind: RunRowKind::Transfer,
        id: cost.id.map(|id| id.0),
        part: cost.part.clone(),
        name: cost.tensor.clone(),
        server: cost.from.clone(),
        device: cost.from_device.clone(),
        to_server: cost.to.clone(),
        to_device: cost.to_device.clone(),
        predicted_us: cost.predicted_us.map(|time| time.0),
        measured_us: Some(cost.measured_us.0),
        waited_us: Some(cost.waited_us.0),
        bytes: Some(cost.bytes.0),
        format: Some(cost.format),
        sent_bytes: Some(cost.sent_bytes.0),
        ..RunRow::default()
    };
    row.with(&cost.scatter)
}

fn server(energy: &ServerEnergy) -> RunRow {
    let sources: Vec<&str> = energy.sources.iter().map(|source| source.source.as_str()).collect();
    RunRow {
        kind: RunRowKind::Server,
        name: sources.join("; "),
        server: energy.server.clone(),
        n: energy.sources.iter().map(|source| source.n).min(),
        predicted_energy_j: energy.predicted_energy_j.map(|energy| energy.0),
        measured_energy_j: Some(energy.measured_energy_j.0),
        ..RunRow::default()
    }
}

fn device(memory: &MemoryUse) -> RunRow {
    let (server, device) = split_device_name(&memory.device);
    let bytes = |bytes: Bytes| Some(bytes.0);
    RunRow {
        kind: RunRowKind::Device,
        server,
        device,
        predicted_load_bytes: bytes(memory.predicted_load_bytes),
        peak_bytes: bytes(memory.peak_bytes),
        predicted_arena_bytes: bytes(memory.predicted_arena_bytes),
        predicted_parameter_bytes: bytes(memory.predicted_parameter_bytes),
        parameter_bytes: bytes(memory.parameter_bytes),
        loading_bytes: bytes(memory.loading_bytes),
        memory_limit_bytes: memory.limit_bytes.map(|limit| limit.0),
        ..RunRow::default()
    }
}
