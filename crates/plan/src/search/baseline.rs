//! Baseline placements, which every plan must beat: everything on one device, and each group on its fastest device.

use super::session::Session;
use crate::{DeviceId, GroupId, placement::Placement};

/// Offers the baselines.
pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    // In program order, and in the minimum-memory order if there is one.
    let orders: Vec<Vec<GroupId>> = session.orders.iter().step_by(2).cloned().collect();
    let fastest: Option<Vec<DeviceId>> = problem.group_ids().map(|g| fastest(session, g)).collect();
    let Some(fastest) = fastest else { return };
    for order in orders {
        for device in problem.device_ids() {
            // A group that the device cannot run goes to its fastest device.
            let here = |(g, other): (GroupId, &DeviceId)| problem.cost(g, device).map_or(*other, |_| device);
            let devices = problem.group_ids().zip(&fastest).map(here).collect();
            let _impossible_is_skipped = session.offer(&Placement { devices, order: order.clone() });
        }
        let _impossible_is_skipped = session.offer(&Placement { devices: fastest.clone(), order });
    }
}

fn fastest(session: &Session<'_>, group: GroupId) -> Option<DeviceId> {
    let problem = session.problem;
    let able = problem.device_ids().filter_map(|d| Some((d, problem.cost(group, d)?.time)));
    able.min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|(device, _)| device)
}
