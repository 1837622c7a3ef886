//! The schedule of a model whose plan of two devices keeps a target.

use edgecut_graph::units::{Bytes, Micros};
use edgecut_memory::{
    model::{Schedule, ScheduleFront},
    target::Target,
};

use super::{OffloadDevices, OffloadPlan, offload};
use crate::problem::Cost;

/// No schedule of the front keeps the target as a plan of both devices.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("no schedule keeps the target{}; the lower bound is {bound}", or_smallest(*.smallest))]
pub struct NoOffload {
    /// The smallest arena of a plan on the computing device.
    pub smallest: Option<Bytes>,
    pub bound: Bytes,
}

fn or_smallest(arena: Option<Bytes>) -> String {
    arena.map_or(String::new(), |arena| format!(": the smallest arena found takes {arena}"))
}

/// The fastest schedule whose plan keeps a memory limit on the computing device; under a slowdown the smallest schedule
/// that is predicted to keep it and can be planned. Schedules are tried from the one that keeps the target by the
/// search's own prediction on, towards smaller peaks.
///
/// # Errors
/// If there is none.
pub fn choose<'a>(
    fitted: &'a ScheduleFront,
    target: Target,
    devices: &OffloadDevices<'_>,
) -> Result<(Schedule<'a>, OffloadPlan), NoOffload> {
    let peak = fitted.best(target).map_or(Bytes::ZERO, |first| first.peak);
    let limit = match target {
        Target::Limit(limit) => limit.of(fitted.original.0),
        Target::Slowdown(_) => Bytes(u64::MAX),
    };
    let mut smallest: Option<Bytes> = None;
    for schedule in fitted.front().into_iter().rev().filter(|schedule| schedule.peak <= peak) {
        let costs: Vec<Cost> = schedule.costs().into_iter().map(cost).collect();
        let Ok(planned) = offload(&schedule.graph(), &costs, devices) else { continue };
        let arena = planned.arena(devices.device);
        if arena <= limit {
            return Ok((schedule, planned));
        }
        smallest = Some(smallest.map_or(arena, |least| least.min(arena)));
    }
    Err(NoOffload { smallest, bound: fitted.peak_bound })
}

/// The cost of a step that takes a time and a workspace.
pub fn cost((time, workspace): (Micros, Bytes)) -> Cost {
    Cost { time, workspace, ..Cost::default() }
}
