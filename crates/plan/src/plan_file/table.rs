//! `plan.csv`: one row per group and per transfer, by start time.

use serde::Serialize;

use super::file::{Plan, Source};
use crate::problem::{DeviceId, transfer_format::TransferFormat};

/// One line of `plan.csv`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanRow {
    pub kind: RowKind,
    /// The number of the group or of the transferred tensor in the model; none for slices of inputs and joins of results.
    pub id: Option<u32>,
    pub name: String,
    /// The device of the group, or the sender.
    pub server: String,
    pub device: String,
    /// The receiver of a transfer.
    pub to_server: String,
    pub to_device: String,
    pub start_us: f64,
    pub time_us: f64,
    /// Of the transferred tensor.
    pub bytes: Option<u64>,
    /// Indices of the group's operators, joined by `+`.
    pub operators: String,
    /// Whether the time of the group is measured; none for transfers, whose times follow the link cost.
    pub source: Option<Source>,
    /// Which part of the group or the tensor it is; empty for all of it.
    pub part: String,
    pub layer: String,
    /// How a transfer is sent, and its size so.
    pub format: Option<TransferFormat>,
    pub sent_bytes: Option<u64>,
    /// What the group consumes above what the idle device draws meanwhile, where that is known.
    pub energy_j: Option<f64>,
    /// Of the group.
    pub workspace_bytes: Option<u64>,
    /// The sizes of unknown dimensions, if the file has several plans. Otherwise empty, and the column is absent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub binding: String,
}

/// What a row describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    Group,
    Transfer,
}

/// The rows of `plan`.
pub fn rows(plan: &Plan) -> Vec<PlanRow> {
    let name = |id: DeviceId| {
        let device = plan.devices.get(id.0 as usize);
        device.map_or_else(Default::default, |d| (d.server.clone(), d.device.clone()))
    };
    let mut rows = Vec::with_capacity(plan.groups.len() + plan.transfers.len());
    for group in &plan.groups {
        let (server, device) = name(group.device);
        let operators: Vec<String> = group.operators.iter().map(|o| o.0.to_string()).collect();
        rows.push(PlanRow {
            kind: RowKind::Group,
            id: group.id,
            name: group.name.clone(),
            server,
            device,
            to_server: String::new(),
            to_device: String::new(),
            start_us: group.start_us.0,
            time_us: group.time_us.0,
            bytes: None,
            operators: operators.join("+"),
            source: Some(group.source),
            part: group.part.clone(),
            layer: group.layer.clone(),
            format: None,
            sent_bytes: None,
            energy_j: group.energy_j.map(|energy| energy.0),
            workspace_bytes: Some(group.workspace_bytes.0),
            binding: String::new(),
        });
    }
    for transfer in &plan.transfers {
        let ((server, device), (to_server, to_device)) = (name(transfer.from), name(transfer.to));
        rows.push(PlanRow {
            kind: RowKind::Transfer,
            id: transfer.id.map(|id| id.0),
            name: transfer.name.clone(),
            server,
            device,
            to_server,
            to_device,
            start_us: transfer.start_us.0,
            time_us: transfer.time_us.0,
            bytes: Some(transfer.bytes.0),
            operators: String::new(),
            source: None,
            part: transfer.part.clone(),
            layer: String::new(),
            format: Some(transfer.format),
            sent_bytes: Some(transfer.sent().0),
            energy_j: None,
            workspace_bytes: None,
            binding: String::new(),
        });
    }
    rows.sort_by(|a, b| a.start_us.total_cmp(&b.start_us).then((a.kind as u8).cmp(&(b.kind as u8))));
    rows
}

/// The rows as CSV with a header.
///
/// # Errors
/// If a row cannot be serialised.
pub fn csv(plan: &Plan) -> Result<String, csv::Error> {
    to_csv(rows(plan))
}

/// `rows` as CSV with a header.
pub(crate) fn to_csv(rows: impl IntoIterator<Item = PlanRow>) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(|e| e.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
