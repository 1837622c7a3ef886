//! The energy of one run, by the linear power model of utilisation: a device draws its idle power all the time, and more
//! while it computes (Fan, Weber & Barroso, Power provisioning for a warehouse-sized computer, ISCA 2007).
//!
//! E = Σ over devices of P_idle · latency + Σ over tasks of P(group, device) · time(task), where P is the power above the
//! idle device's. All devices of the cluster are switched on for the run, whether they compute or not. Transfers cost
//! nothing above idle, since no source tells the network's energy: not on links, nor the time that they take of devices
//! that compute ([`Handling`](crate::problem::Handling)).

use edgecut_graph::units::{Joules, Micros, Watts};

use crate::problem::{Cost, Objective, Problem};

impl Cost {
    /// What a task of this cost consumes above what the idle device draws meanwhile.
    pub(crate) fn energy_above_idle(&self) -> Joules {
        self.power.during(self.time)
    }
}

impl Problem {
    /// The sum of the idle power of all devices; zero for those whose power is not known.
    pub(crate) fn idle_power(&self) -> Watts {
        self.devices.iter().filter_map(|device| device.idle).sum()
    }

    /// Whether the energy of a run is known: the power of every device is, or energy is the objective, and no group can run on
    /// the other devices.
    pub(crate) fn knows_energy(&self) -> bool {
        self.objective == Objective::Energy || self.devices.iter().all(|device| device.idle.is_some())
    }
}

/// The energy of a run of this latency on devices that draw `idle` together, and whose tasks consume `above_idle`.
pub fn of_run(idle: Watts, latency: Micros, above_idle: Joules) -> Joules {
    idle.during(latency) + above_idle
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check,
        judge::{evaluation::Evaluation, solution::Solution},
        plan_file::file::{Granularity, ModelRef, Plan},
        search::{options::Options, solve::solve},
        test_problems::{hand_made, placement},
    };

    /// A chain on two devices, the second of which takes three times as long and draws a tenth of the power above idle.
    fn frugal_neighbour() -> Problem {
        let mut problem = hand_made(&[(&[0], 100.0), (&[1], 300.0)]);
        for group in &mut problem.groups {
            let [Some(fast), Some(slow)] = &mut group.costs[..] else { unreachable!("two devices") };
            slow.time = Micros(3.0 * fast.time.0);
            (fast.power, slow.power) = (Watts(50.0), Watts(5.0));
        }
        (problem.devices[0].idle, problem.devices[1].idle) = (Some(Watts(1.0)), Some(Watts(2.0)));
        problem
    }

    fn best(objective: Objective) -> Solution {
        let problem = Problem { objective, ..frugal_neighbour() };
        solve(&problem, &Options { seed: 1, budget: Some(500), cut_off: None, ..Options::default() }).unwrap()
    }

    #[test]
    fn energy_is_idle_power_for_the_latency_and_power_for_the_times() {
        let problem = frugal_neighbour();
        // Links take 10 + 0.1 · 100 microseconds each way.
        for (devices, latency, above_uj) in
            [([0, 0], 400.0, 20_000.0), ([1, 1], 1240.0, 6_000.0), ([0, 1], 1040.0, 9_500.0)]
        {
            let evaluation = Evaluation::of(&problem, placement(&devices)).unwrap();
            assert_eq!(evaluation.latency(), Micros(latency), "{devices:?}");
            let want = (3.0 * latency + above_uj) / 1e6;
            assert!((evaluation.energy.0 - want).abs() < 1e-12, "{devices:?}: {} for {want}", evaluation.energy);
        }
    }

    #[test]
    fn a_slower_device_that_draws_less_wins_by_energy_and_loses_by_latency() {
        let devices = |solution: &Solution| -> Vec<u32> {
            solution.evaluation.placement.devices.iter().map(|device| device.0).collect()
        };
        let (fast, frugal) = (best(Objective::Latency), best(Objective::Energy));
        assert_eq!((devices(&fast), devices(&frugal)), (vec![0, 0], vec![1, 1]));
        assert!(
            frugal.evaluation.energy < fast.evaluation.energy
                && frugal.evaluation.latency() > fast.evaluation.latency()
        );
        assert!((frugal.bound.value - frugal.value()).abs() < 1e-12, "on a chain the bound is the optimum");
    }

    #[test]
    fn the_checker_derives_energy_from_the_plan_alone() {
        let problem = Problem { objective: Objective::Energy, ..frugal_neighbour() };
        let plan = Plan::new(&problem, &best(Objective::Energy), ModelRef::default(), Granularity::Op, 1);
        assert_eq!(check::plan(&problem, &plan), Ok(()));
        let wrong = |change: &dyn Fn(&mut Plan)| {
            let mut changed = plan.clone();
            change(&mut changed);
            check::plan(&problem, &changed).unwrap_err().to_string()
        };
        assert!(wrong(&|plan| plan.predicted.energy_j = Some(Joules(0.001))).contains("the energy of a run is 0.001"));
        assert!(wrong(&|plan| plan.predicted.energy_j = None).contains("the energy of a run is 0"));
        assert!(wrong(&|plan| plan.groups[1].energy_j = Some(Joules(0.0))).contains("the energy of g1 is 0"));
        assert!(wrong(&|plan| plan.devices[1].idle_w = Some(Watts(1.0))).contains("the idle power of s1/cpu is 1"));
        // Without power of one device, plans for other objectives say nothing of energy.
        let mut silent = Problem { objective: Objective::Latency, ..problem.clone() };
        silent.devices[0].idle = None;
        let solution = solve(&silent, &Options::default()).unwrap();
        let plan = Plan::new(&silent, &solution, ModelRef::default(), Granularity::Op, 1);
        assert_eq!((plan.predicted.energy_j, check::plan(&silent, &plan)), (None, Ok(())));
        assert!(plan.groups.iter().all(|group| group.energy_j.is_none()));
    }
}
