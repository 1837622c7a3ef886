//! Limits, targets, the bound and the gap.

use super::{
    checker::Checker,
    violation::{Violation, close, figure},
};
use crate::problem::Objective;

impl Checker<'_> {
    /// All limits and targets are met, and the bound is not above the value.
    pub(super) fn targets(&self) -> Result<(), Violation> {
        let (predicted, plan) = (&self.plan.predicted, self.plan);
        for (device, entry) in self.problem.devices.iter().zip(&plan.devices) {
            let reserved = entry.memory.parameter_bytes + entry.memory.arena_bytes;
            if device.memory.is_some_and(|limit| reserved > limit) {
                return Err(Violation::Target(format!("the memory limit of {}", device.device_name())));
            }
        }
        if self.problem.targets.latency.is_some_and(|target| predicted.latency_us > target) {
            return Err(Violation::Target("the latency target".into()));
        }
        if self.problem.targets.throughput.is_some_and(|rate| predicted.interval_us.0 * rate > 1e6 * (1.0 + 1e-9)) {
            return Err(Violation::Target("the throughput target".into()));
        }
        let value = match self.problem.objective {
            Objective::Latency => predicted.latency_us.0,
            Objective::Throughput => predicted.interval_us.0,
            Objective::Memory => predicted.peak_bytes.0 as f64,
            Objective::Energy => predicted.energy_j.unwrap_or_default().0,
        };
        // In microjoules, of which the tolerance is one that of other figures is made for.
        let unit = if self.problem.objective == Objective::Energy { 1e-9 } else { 1.0 };
        if plan.bound.value > value && !close(plan.bound.value / unit, value / unit) {
            return Err(Violation::Figure { what: "the bound".into(), stated: plan.bound.value, real: value });
        }
        let gap = if value > 0.0 { ((value - plan.bound.value) / value).max(0.0) } else { 0.0 };
        figure("the gap".into(), plan.gap, gap)
    }
}
