//! Where the operators of a model run by a plan, each whole on one device.

use std::collections::BTreeMap;

use edgecut_graph::{
    Graph, OperatorId,
    units::{Bytes, Micros},
};
use edgecut_plan::{DeviceId, Plan};
use edgecut_profile::items;

/// A plan with whole operators.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WholePlacement {
    /// By operator of the model. Operators that no group of the plan has are on the sink.
    pub devices: Vec<DeviceId>,
    /// The groups of the model that the plan has.
    pub groups: Vec<PlacedGroup>,
    /// Number of groups with parts on several devices.
    pub divided: usize,
}

/// A group of the model, and the most memory that any of its parts in the plan allocates.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacedGroup {
    pub operators: Vec<OperatorId>,
    pub workspace: Bytes,
}

/// The plan is of another model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plan has a group #{id}, `{name}`, that the model does not have: make the plan again")]
pub(super) struct ForeignGroup {
    id: u32,
    name: String,
}

/// The placement by `plan` of the operators of `model`, the graph before splits and schedules. A group with parts on several
/// devices is on that with the most of its time.
///
/// # Errors
/// With the first group of the plan that the model does not have.
pub(super) fn whole_placement(plan: &Plan, model: &Graph) -> Result<WholePlacement, ForeignGroup> {
    let items = items(model, plan.granularity);
    // By group of the model, and then by device: time, number of parts.
    let mut parts: BTreeMap<u32, BTreeMap<DeviceId, (Micros, usize)>> = BTreeMap::new();
    let mut workspaces: BTreeMap<u32, Bytes> = BTreeMap::new();
    for group in &plan.groups {
        let Some(id) = group.id else { continue };
        if items.get(id as usize).is_none() {
            return Err(ForeignGroup { id, name: group.name.clone() });
        }
        let (time, count) = parts.entry(id).or_default().entry(group.device).or_default();
        (*time, *count) = (*time + group.time_us, *count + 1);
        let workspace = workspaces.entry(id).or_default();
        *workspace = (*workspace).max(group.workspace_bytes);
    }
    let mut placed = WholePlacement {
        devices: vec![plan.sink; model.operators().len()],
        groups: Vec::with_capacity(parts.len()),
        divided: parts.values().filter(|devices| devices.len() > 1).count(),
    };
    for (id, devices) in &parts {
        let (operators, workspace) = (items[*id as usize].operators.clone(), workspaces[id]);
        let Some(device) = largest(devices) else { continue };
        operators.iter().for_each(|operator| placed.devices[operator.0 as usize] = device);
        placed.groups.push(PlacedGroup { operators, workspace });
    }
    Ok(placed)
}

/// The device with the most time, then with the most parts, then the first.
fn largest(devices: &BTreeMap<DeviceId, (Micros, usize)>) -> Option<DeviceId> {
    let by_share = devices.iter().rev().max_by(|(_, a), (_, b)| a.0.0.total_cmp(&b.0.0).then(a.1.cmp(&b.1)));
    by_share.map(|(device, _)| *device)
}

impl WholePlacement {
    /// The device of what computes `operators`: that of the first; the sink's for none.
    pub fn device(&self, operators: &[OperatorId], plan: &Plan) -> DeviceId {
        operators.first().and_then(|id| self.devices.get(id.0 as usize)).copied().unwrap_or(plan.sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_share_decides() {
        let shares = |list: &[(u32, f64, usize)]| {
            largest(&list.iter().map(|(device, time, parts)| (DeviceId(*device), (Micros(*time), *parts))).collect())
        };
        assert_eq!(shares(&[(0, 3.0, 9), (1, 4.0, 1)]), Some(DeviceId(1)));
        assert_eq!(shares(&[(0, 0.0, 1), (1, 0.0, 2)]), Some(DeviceId(1)));
        assert_eq!(shares(&[(2, 1.0, 1), (3, 1.0, 1)]), Some(DeviceId(2)));
        assert_eq!(shares(&[]), None);
    }
}
