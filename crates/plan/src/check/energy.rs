//! Energy: idle power of every device for the latency, and what its groups consume above that.

use super::{
    checker::Checker,
    violation::{Violation, close},
};
use crate::problem::Objective;
use edgecut_graph::units::Joules;

impl Checker<'_> {
    /// Idle power of every device, energy of every group, and that of the run.
    pub(super) fn energy(&self) -> Result<(), Violation> {
        let is_known = self.problem.objective == Objective::Energy
            || self.problem.devices.iter().all(|device| device.idle.is_some());
        let (mut idle, mut above) = (0.0, 0.0);
        for (device, entry) in self.problem.devices.iter().zip(&self.plan.devices) {
            let watts = device.idle.map_or(0.0, |idle| idle.0);
            let stated = entry.idle_w.map_or(0.0, |idle| idle.0);
            if stated != watts {
                let what = format!("the idle power of {}", entry.device_name());
                return Err(Violation::Figure { what, stated, real: watts });
            }
            idle += watts;
        }
        for ((group, home), entry) in self.problem.groups.iter().zip(&self.homes).zip(&self.plan.groups) {
            let cost = group.costs[*home].unwrap_or_default();
            let real = if is_known { cost.power.0 * cost.time.0 * 1e-6 } else { 0.0 };
            joules(|| format!("the energy of {}", entry.name), entry.energy_j, real)?;
            above += real;
        }
        let real = if is_known { idle * self.plan.predicted.latency_us.0 * 1e-6 + above } else { 0.0 };
        joules(|| "the energy of a run".into(), self.plan.predicted.energy_j, real)
    }
}

/// Compares energies; none is as good as zero. Those of small operators are microjoules, to which the tolerance of other
/// figures would be too coarse.
fn joules(what: impl Fn() -> String, stated: Option<Joules>, real: f64) -> Result<(), Violation> {
    let stated = stated.unwrap_or_default().0;
    let is_close = close(stated * 1e9, real * 1e9);
    if is_close { Ok(()) } else { Err(Violation::Figure { what: what(), stated, real }) }
}
