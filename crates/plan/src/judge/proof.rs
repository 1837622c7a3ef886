//! What no placement of a problem meets, by bounds alone.

use super::{
    bound::{Bounds, critical_path::Tails, footprint},
    no_plan::Shortage,
};
use crate::problem::{DeviceId, GroupId, Problem};
use edgecut_graph::units::{Bytes, Micros};

/// A target is missed if it is exceeded by more than rounding.
pub(crate) const SLACK: f64 = 1.0 + 1e-9;

/// The groups that run on no device.
pub(crate) fn unsupported(problem: &Problem) -> Vec<Shortage> {
    let nowhere = problem.groups.iter().filter(|group| group.costs.iter().all(Option::is_none));
    nowhere.map(|group| Shortage::Unsupported { group: group.label.clone() }).collect()
}

/// What no placement of `problem` meets, by bounds alone.
pub(crate) fn proof(problem: &Problem, bounds: &Bounds) -> Vec<Shortage> {
    let mut shortages = unsupported(problem);
    for id in problem.group_ids() {
        let able = problem.device_ids().filter_map(|d| Some((d, footprint::group(problem, id, d)?)));
        let group = problem.group(id).label.clone();
        let short = |(d, need): (DeviceId, Bytes)| {
            let limit = problem.device(d).memory.unwrap_or(Bytes(u64::MAX));
            (limit.shortfall(need), need, d)
        };
        if let Some((short, need, device)) = able.map(short).min_by_key(|s| (s.0, s.2)).filter(|s| s.0 > Bytes::ZERO) {
            shortages.push(Shortage::Group { group, need, short, device: problem.device(device).device_name() });
        }
    }
    shortages.extend(parameters(problem));
    shortages.extend(critical_path(problem, bounds));
    shortages.extend(work(problem, bounds));
    shortages
}

/// That the latency target is below the bound on the latency, if it is.
pub(crate) fn critical_path(problem: &Problem, bounds: &Bounds) -> Option<Shortage> {
    let (target, length) = (problem.targets.latency?, bounds.latency.value);
    (length.0 > target.0 * SLACK).then(|| {
        let chain = Tails::of(problem).critical_path(problem);
        let name = |g: Option<&(GroupId, DeviceId)>| g.map_or(String::new(), |(g, _)| problem.group(*g).label.clone());
        let (first, last, on) = (name(chain.first()), name(chain.last()), "on its best devices");
        Shortage::Chain { groups: chain.len(), first, last, length, on, target, excess: length - target }
    })
}

/// That all parameters are larger than all memories together, if they are.
pub(crate) fn parameters(problem: &Problem) -> Option<Shortage> {
    let room: Bytes = problem.devices.iter().map(|device| device.memory).sum::<Option<Bytes>>()?;
    let need = footprint::parameters(problem);
    let short = room.shortfall(need);
    (short > Bytes::ZERO).then_some(Shortage::Parameters { need, short })
}

/// That the work is too much for the target of throughput, if it is.
pub(crate) fn work(problem: &Problem, bounds: &Bounds) -> Option<Shortage> {
    let (target, interval) = (Micros(1e6 / problem.targets.throughput?), bounds.interval.value);
    (interval.0 > target.0 * SLACK).then(|| Shortage::Work { interval, target, excess: interval - target })
}
