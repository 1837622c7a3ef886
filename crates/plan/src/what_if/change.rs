//! What a move changes, figure by figure: latency, energy where it is known, the devices' memory, transfers.

use std::collections::BTreeMap;

use serde::Serialize;

use edgecut_graph::units::Bytes;

use super::moved::Moved;
use crate::{
    candidate::Candidate,
    check::{self, Violation},
    plan_file::file::{DevicePlan, MemoryPlan, Plan, Transfer},
    problem::{DeviceId, Targets},
};

/// One figure before and after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangeRow {
    /// With its unit.
    pub figure: &'static str,
    /// Of a transfer: the tensor.
    pub name: String,
    /// The device that the figure is of, or the sender.
    pub server: String,
    pub device: String,
    /// The receiver of a transfer.
    pub to_server: String,
    pub to_device: String,
    /// `None` of a transfer that is not in the plan.
    pub before: Option<f64>,
    pub after: Option<f64>,
    pub difference: f64,
}

impl ChangeRow {
    fn new(figure: &'static str, before: f64, after: f64) -> ChangeRow {
        ChangeRow {
            figure,
            name: String::new(),
            server: String::new(),
            device: String::new(),
            to_server: String::new(),
            to_device: String::new(),
            before: Some(before),
            after: Some(after),
            difference: after - before,
        }
    }

    fn of_device(device: &DevicePlan, figure: &'static str, before: f64, after: f64) -> ChangeRow {
        let (server, device) = (device.server.clone(), device.device.clone());
        ChangeRow { server, device, ..ChangeRow::new(figure, before, after) }
    }
}

/// The figures of `moved` that a person would compare, then the transfers that are in one of the plans or take another
/// time.
///
/// # Errors
/// If a plan does not pass the checker.
pub fn changes(moved: &Moved) -> Result<Vec<ChangeRow>, Violation> {
    let (before, after) = (figures(&moved.before)?, figures(&moved.after)?);
    let bytes = |plan: &Plan| plan.transfers.iter().map(Transfer::sent).sum::<Bytes>().0 as f64;
    let time = |plan: &Plan| plan.transfers.iter().map(|transfer| transfer.time_us.0).sum::<f64>();
    let both = |figure, of: &dyn Fn(&Plan) -> f64| ChangeRow::new(figure, of(&before), of(&after));
    let mut rows = vec![
        both("latency_us", &|plan| plan.predicted.latency_us.0),
        both("interval_us", &|plan| plan.predicted.interval_us.0),
        both("transfers", &|plan| plan.transfers.len() as f64),
        both("transfer_bytes", &bytes),
        both("transfer_us", &time),
    ];
    if let (Some(was), Some(is)) = (before.predicted.energy_j, after.predicted.energy_j) {
        rows.push(ChangeRow::new("energy_j", was.0, is.0));
    }
    for (device, now) in before.devices.iter().zip(&after.devices) {
        rows.push(ChangeRow::of_device(device, "busy_us", device.busy_us.0, now.busy_us.0));
        for (figure, of) in MEMORY {
            let value = |device: &DevicePlan| of(&device.memory).0 as f64;
            rows.push(ChangeRow::of_device(device, figure, value(device), value(now)));
        }
    }
    rows.extend(transfers(&before, &after));
    Ok(rows)
}

/// A figure of a device's memory, by name.
type MemoryFigure = (&'static str, fn(&MemoryPlan) -> Bytes);

const MEMORY: [MemoryFigure; 3] = [
    ("parameter_bytes", |memory| memory.parameter_bytes),
    ("load_bytes", |memory| memory.load_bytes),
    ("arena_bytes", |memory| memory.arena_bytes),
];

/// The plan of `candidate`, checked but for what it misses: a move may well exceed a limit.
fn figures(candidate: &Candidate) -> Result<Plan, Violation> {
    let mut problem = candidate.expanded.problem.clone();
    let plan = Plan::new(&problem, &candidate.solution, Default::default(), Default::default(), 0);
    problem.targets = Targets::default();
    problem.devices.iter_mut().for_each(|device| device.memory = None);
    check::plan(&problem, &plan)?;
    Ok(plan)
}

/// A transfer, by tensor and devices.
type Route<'p> = (&'p str, DeviceId, DeviceId);

fn transfers(before: &Plan, after: &Plan) -> Vec<ChangeRow> {
    let by_route = |plan: &'_ Plan| -> BTreeMap<(String, DeviceId, DeviceId), f64> {
        let route = |transfer: &Transfer| ((transfer.name.clone(), transfer.from, transfer.to), transfer.time_us.0);
        plan.transfers.iter().map(route).collect()
    };
    let (old, new) = (by_route(before), by_route(after));
    let device = |id: DeviceId| before.devices.get(id.0 as usize).map(|d| (d.server.clone(), d.device.clone()));
    let row = |(name, from, to): Route<'_>, was: Option<f64>, is: Option<f64>| {
        let (server, here) = device(from).unwrap_or_default();
        let (to_server, to_device) = device(to).unwrap_or_default();
        ChangeRow {
            figure: "transfer_us",
            name: name.to_string(),
            server,
            device: here,
            to_server,
            to_device,
            before: was,
            after: is,
            difference: is.unwrap_or_default() - was.unwrap_or_default(),
        }
    };
    let gone = old.iter().filter(|(route, time)| new.get(*route) != Some(time));
    let gone = gone.map(|(route, time)| row((&route.0, route.1, route.2), Some(*time), new.get(route).copied()));
    let come = new.iter().filter(|(route, _)| !old.contains_key(*route));
    let come = come.map(|(route, time)| row((&route.0, route.1, route.2), None, Some(*time)));
    gone.chain(come).collect()
}
