//! Lower bounds on the energy of one run: every group consumes at least as much as on the device where it consumes the
//! least, and idle devices draw their power for at least as long as any plan takes.
//!
//! Along one path of groups both are one shortest path: each group costs idle power · time and what it consumes above its
//! least, each transfer idle power · time. That is the critical path of a problem with these weights instead of times, and
//! all groups' least energies come on top. On a chain the sum is the optimum.

use super::{LowerBound, critical_path::Tails};
use crate::{
    judge::energy,
    problem::{DeviceId, GroupId, Objective, Problem},
};
use edgecut_graph::units::{Joules, Micros, Watts};

/// The least that all groups consume above idle, each on the device where it consumes the least; infinite if some group
/// runs nowhere.
pub fn least(problem: &Problem) -> Joules {
    Joules((0..problem.groups.len()).map(|group| least_of(problem, group)).sum())
}

/// In joules.
fn least_of(problem: &Problem, group: usize) -> f64 {
    let energies = problem.groups[group].costs.iter().flatten().map(|cost| cost.energy_above_idle().0);
    energies.fold(f64::INFINITY, f64::min)
}

/// The bound on the energy of every placement, none of which is faster than `latency`; along paths only where energy is the
/// objective.
pub fn run(problem: &Problem, latency: Micros) -> LowerBound<Joules> {
    let apart = energy::of_run(problem.idle_power(), latency, least(problem));
    match EnergyTails::for_objective(problem).map(|tails| tails.critical_path) {
        Some(path) if path >= apart => {
            LowerBound { value: path, by: "least energy of all groups, and idle power along a path of them" }
        }
        _ => LowerBound { value: apart, by: "least energy of all groups, and idle power for the least latency" },
    }
}

/// The parts of a bound on all completions of a partial placement, in which time and energy above the least count
/// together along a path.
#[derive(Debug, Clone)]
pub struct EnergyTails {
    idle: Watts,
    /// By group, in joules.
    least: Vec<f64>,
    sum: f64,
    /// Of the weighted problem, in microjoules.
    tails: Tails,
    /// The bound on every placement.
    critical_path: Joules,
}

impl EnergyTails {
    /// Those of `problem`; `None` where energy is not the objective.
    pub fn for_objective(problem: &Problem) -> Option<EnergyTails> {
        (problem.objective == Objective::Energy).then(|| EnergyTails::of(problem))
    }

    fn of(problem: &Problem) -> EnergyTails {
        let idle = problem.idle_power();
        let least: Vec<f64> = (0..problem.groups.len()).map(|group| least_of(problem, group)).collect();
        let mut weighted = problem.clone();
        for (group, least) in weighted.groups.iter_mut().zip(&least) {
            for cost in group.costs.iter_mut().flatten() {
                // Watts times microseconds are microjoules.
                let above = (cost.energy_above_idle().0 - least).max(0.0) * 1e6;
                cost.time = Micros(idle.0 * cost.time.0 + above);
            }
        }
        for link in &mut weighted.links {
            *link = link.clone().slower(idle.0);
        }
        let (tails, sum) = (Tails::of(&weighted), least.iter().sum::<f64>());
        let critical_path = Joules(sum + tails.critical_path_length(&weighted).0 / 1e6);
        EnergyTails { idle, least, sum, tails, critical_path }
    }

    /// What `group` consumes above its least, where it consumes `energy` above idle.
    pub fn above_least(&self, group: GroupId, energy: Joules) -> Joules {
        Joules((energy.0 - self.least[group.0 as usize]).max(0.0))
    }

    /// A lower bound on the energy of a run in which `group` ends on `device` at `finish`, and the groups up to it consume
    /// `above_least` more than their least.
    pub fn bound(&self, group: GroupId, device: DeviceId, finish: Micros, above_least: Joules) -> Joules {
        let tail = Joules(self.tails.group(group, device) / 1e6);
        energy::of_run(self.idle, finish, above_least + Joules(self.sum) + tail)
    }
}
