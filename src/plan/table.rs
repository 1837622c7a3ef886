//! The plan as rows: one a group and one a transfer, in the order in which they start.

use serde::Serialize;

use super::{DeviceId, Plan, file::Source};

/// One line of `plan.csv`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub kind: Kind,
    /// The group's index; of a transfer, the graph's tensor.
    pub id: u32,
    pub name: String,
    /// Where the group runs, or the transfer comes from.
    pub server: String,
    pub device: String,
    /// Where a transfer goes.
    pub to_server: String,
    pub to_device: String,
    pub start_us: f64,
    pub time_us: f64,
    /// Sent bytes of a transfer, workspace of a group.
    pub bytes: u64,
    /// Indices of the group's operators, joined by `+`.
    pub operators: String,
    /// Whether the group was measured; empty of a transfer, which follows what was measured of its link.
    pub source: Option<Source>,
}

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Group,
    Transfer,
}

/// The rows of `plan`.
pub fn rows(plan: &Plan) -> Vec<Row> {
    let name = |id: DeviceId| {
        let device = plan.devices.get(id.0 as usize);
        device.map_or_else(Default::default, |d| (d.server.clone(), d.device.clone()))
    };
    let mut rows = Vec::with_capacity(plan.groups.len() + plan.transfers.len());
    for (id, group) in (0u32..).zip(&plan.groups) {
        for device in group.strategy.devices() {
            let (server, device) = name(device);
            let operators: Vec<String> = group.operators.iter().map(|o| o.0.to_string()).collect();
            rows.push(Row {
                kind: Kind::Group,
                id,
                name: group.name.clone(),
                server,
                device,
                to_server: String::new(),
                to_device: String::new(),
                start_us: group.start_us.0,
                time_us: group.time_us.0,
                bytes: group.workspace_bytes.0,
                operators: operators.join("+"),
                source: Some(group.source),
            });
        }
    }
    for transfer in &plan.transfers {
        let ((server, device), (to_server, to_device)) = (name(transfer.from), name(transfer.to));
        rows.push(Row {
            kind: Kind::Transfer,
            id: transfer.tensor.0,
            name: transfer.name.clone(),
            server,
            device,
            to_server,
            to_device,
            start_us: transfer.start_us.0,
            time_us: transfer.time_us.0,
            bytes: transfer.bytes.0,
            operators: String::new(),
            source: None,
        });
    }
    rows.sort_by(|a, b| a.start_us.total_cmp(&b.start_us).then((a.kind as u8, a.id).cmp(&(b.kind as u8, b.id))));
    rows
}

/// The rows as CSV with a header.
///
/// # Errors
/// Never for want of anything in the plan; only if memory runs out while writing.
pub fn csv(plan: &Plan) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows(plan) {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(|e| e.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
