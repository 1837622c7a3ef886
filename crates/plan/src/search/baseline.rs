//! Baseline placements, which every plan must beat: everything on one device, each group on its fastest device, and for
//! energy each on the device where it consumes the least.

use super::session::Session;
use crate::problem::{Cost, DeviceId, GroupId, Objective, placement::Placement};

/// Offers the baselines.
pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    // In program order, and in the minimum-memory order if there is one.
    let orders: Vec<Vec<GroupId>> = session.orders.iter().step_by(2).cloned().collect();
    let fastest: Option<Vec<DeviceId>> = problem.group_ids().map(|g| best(session, g, |cost| cost.time.0)).collect();
    let Some(fastest) = fastest else { return };
    for order in orders {
        for device in problem.device_ids() {
            // A group that the device cannot run goes to its fastest device.
            let here = |(g, other): (GroupId, &DeviceId)| problem.cost(g, device).map_or(*other, |_| device);
            let devices = problem.group_ids().zip(&fastest).map(here).collect();
            let _impossible_is_skipped = session.offer(&Placement { devices, order: order.clone() });
        }
        if problem.objective == Objective::Energy {
            let frugal = problem.group_ids().filter_map(|g| best(session, g, |cost| cost.energy_above_idle().0));
            let _impossible_is_skipped = session.offer(&Placement { devices: frugal.collect(), order: order.clone() });
        }
        let _impossible_is_skipped = session.offer(&Placement { devices: fastest.clone(), order });
    }
}

/// The device with the least value for `group`.
fn best(session: &Session<'_>, group: GroupId, value: impl Fn(Cost) -> f64) -> Option<DeviceId> {
    let problem = session.problem;
    let able = problem.device_ids().filter_map(|d| Some((d, value(problem.cost(group, d)?))));
    able.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(device, _)| device)
}
