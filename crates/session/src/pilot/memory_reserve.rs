//! Memory limits after agents refused candidates: kernels pack weights and need workspace, so a run takes more than predicted.
//! A refusal shows the ratio of taken to predicted memory; the next candidate is planned with limits lowered by that ratio.

use std::collections::BTreeMap;

use edgecut_agent::protocol::MemoryShortfall;
use edgecut_graph::{DeviceName, units::Bytes};
use edgecut_plan::{Candidate, PlanRequest, file::DevicePlan, problem::Device};

/// Taken off what follows from a refusal, since another plan packs other weights.
const MARGIN: f64 = 0.995;

/// What a refusal leaves of a limit where the agent does not say what is missing.
const UNKNOWN: f64 = 0.98;

/// See the module's head.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryReserve {
    /// The limit to plan with, by device.
    limits: BTreeMap<DeviceName, Bytes>,
    /// What the agent said last.
    last: Option<String>,
}

impl MemoryReserve {
    /// After the agent of `server` refused a plan of `devices` with `message`; `shortfall` is `None` if it does not say of which
    /// device.
    pub fn refused(
        &mut self,
        devices: &[DevicePlan],
        server: &str,
        shortfall: Option<&MemoryShortfall>,
        message: &str,
    ) {
        self.last = Some(format!("agent {server}: {message}"));
        for device in devices.iter().filter(|device| device.server == server) {
            let limit = match shortfall {
                Some(shortfall) if shortfall.device == device.device => less(device, shortfall.bytes),
                Some(_) => None,
                None => self.limit(device).map(|limit| Bytes((limit.0 as f64 * UNKNOWN) as u64)),
            };
            let known = self.limit(device);
            // Candidates that were planned with the same limits are refused one after the other.
            if let Some(limit) = limit.filter(|limit| known.is_none_or(|known| *limit < known)) {
                self.limits.insert(device.device_name(), limit);
            }
        }
    }

    fn limit(&self, device: &DevicePlan) -> Option<Bytes> {
        self.limits.get(&device.device_name()).copied().or(device.memory_limit_bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// What the agent that refused last said.
    pub fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// `request` with lower limits.
    pub fn applied_to<'a>(&self, request: &PlanRequest<'a>) -> PlanRequest<'a> {
        let mut less = request.clone();
        for device in &mut less.instance_mut().network.devices {
            if let Some(limit) = self.limits.get(&device.device_name()) {
                device.memory = Some(device.memory.map_or(*limit, |own| own.min(*limit)));
            }
        }
        less
    }

    /// A candidate for lower limits, with those that `request` has.
    pub fn restored(mut candidate: Candidate, request: &PlanRequest<'_>) -> Candidate {
        restore(&mut candidate.expanded.problem.devices, &request.instance.network.devices);
        candidate
    }
}

/// Gives `devices` the memory limits of `limited`, in the same order, and nothing else: what transfers take of a device is
/// part of the costs that the candidate was evaluated with.
fn restore(devices: &mut [Device], limited: &[Device]) {
    for (device, limited) in devices.iter_mut().zip(limited) {
        device.memory = limited.memory;
    }
}

/// The limit at which a plan is predicted to take so little that its run fits: a run takes as many times what is predicted as
/// this one did.
fn less(device: &DevicePlan, short: Bytes) -> Option<Bytes> {
    let limit = device.memory_limit_bytes?;
    let predicted = device.memory.parameter_bytes + device.memory.arena_bytes;
    let taken = (limit + short).0 as f64;
    Some(Bytes((predicted.min(limit).0 as f64 * (limit.0 as f64 / taken) * MARGIN) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::units::Micros;
    use edgecut_plan::{
        file::MemoryPlan,
        problem::{Handling, HandlingCost},
    };

    fn device(limit: u64, predicted: u64) -> DevicePlan {
        DevicePlan {
            server: "s".to_string(),
            device: "cpu".to_string(),
            address: None,
            threads: None,
            engine: None,
            hardware: None,
            memory_limit_bytes: Some(Bytes(limit)),
            order: Vec::new(),
            busy_us: Micros::ZERO,
            idle_w: None,
            memory: MemoryPlan { parameter_bytes: Bytes(predicted), ..MemoryPlan::default() },
        }
    }

    #[test]
    fn limits_are_restored_and_handling_stays() {
        let cost = HandlingCost { each: Micros(3.0), per_byte: 0.0 };
        let with =
            |memory: u64, handling: Handling| Device { memory: Some(Bytes(memory)), handling, ..Device::default() };
        let mut devices = [with(500, Handling::default())];
        restore(&mut devices, &[with(1000, Handling { sending: cost, receiving: cost })]);
        assert_eq!(devices, [with(1000, Handling::default())]);
    }

    #[test]
    fn what_was_missing_follows_from_what_was_predicted() {
        // 1 % more than the limit was taken: 1 % less may be predicted.
        assert_eq!(less(&device(1000, 1000), Bytes(10)), Some(Bytes(985)));
        // A run that takes 1.75 times what is predicted fits where 571 are.
        assert_eq!(less(&device(1000, 600), Bytes(50)), Some(Bytes(568)));
        let mut reserve = MemoryReserve::default();
        let mut devices = [device(1000, 1000)];
        let short = |bytes| MemoryShortfall { device: "cpu".into(), bytes: Bytes(bytes) };
        for (missing, limit) in [(10, 985), (30, 966), (20, 966)] {
            reserve.refused(&devices, "s", Some(&short(missing)), "too much");
            assert_eq!(reserve.limit(&devices[0]), Some(Bytes(limit)), "not the sum of {missing} and others");
        }
        reserve.refused(&devices, "other", Some(&short(500)), "too much");
        assert_eq!(reserve.limit(&devices[0]), Some(Bytes(966)));
        devices[0].memory.parameter_bytes = Bytes(960);
        reserve.refused(&devices, "s", None, "too much");
        assert_eq!((reserve.limit(&devices[0]), reserve.last()), (Some(Bytes(946)), Some("agent s: too much")));
    }
}
