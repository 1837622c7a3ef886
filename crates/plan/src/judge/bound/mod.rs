//! Lower bounds on latency, interval, peak memory and energy over all placements: one argument a file.
//!
//! | module | argument |
//! |---|---|
//! | [`critical_path`] | a chain of groups takes at least its time on the best devices, with the transfers between those |
//! | [`area`] | all work spread over the devices in fractions still loads one of them this much |
//! | [`footprint`] | one device holds the working set of the largest group; all parameters are somewhere |
//! | [`energy`] | every group consumes its least; idle power for as long as any plan takes |

pub mod area;
pub mod critical_path;
pub mod energy;
pub mod footprint;
mod lower_bound;

pub use self::lower_bound::LowerBound;

use crate::problem::{Objective, Problem};
use edgecut_graph::units::{Bytes, Joules, Micros};

/// The bounds on everything that plans are compared by.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    pub latency: LowerBound<Micros>,
    /// On the time between results.
    pub interval: LowerBound<Micros>,
    pub peak: LowerBound<Bytes>,
    /// Of one run.
    pub energy: LowerBound<Joules>,
}

impl Bounds {
    /// The strongest bound of each kind.
    pub fn of(problem: &Problem) -> Bounds {
        let path = critical_path::Tails::of(problem).critical_path_length(problem);
        let area = area::interval(problem);
        let latency = match path >= area {
            true => LowerBound { value: path, by: "longest chain of groups on its best devices" },
            false => LowerBound { value: area, by: "all work spread evenly" },
        };
        let interval = LowerBound { value: area, by: "all work spread evenly" };
        let energy = energy::run(problem, latency.value);
        Bounds { latency, interval, peak: footprint::peak(problem), energy }
    }

    /// The bound on the objective, in its unit.
    pub fn on(&self, objective: Objective) -> LowerBound<f64> {
        match objective {
            Objective::Latency => LowerBound { value: self.latency.value.0, by: self.latency.by },
            Objective::Throughput => LowerBound { value: self.interval.value.0, by: self.interval.by },
            Objective::Memory => LowerBound { value: self.peak.value.0 as f64, by: self.peak.by },
            Objective::Energy => LowerBound { value: self.energy.value.0, by: self.energy.by },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judge::evaluation::Evaluation,
        test_problems::{hand_made, random, random_placement},
    };

    #[test]
    fn no_placement_goes_below_a_bound() {
        for seed in 0..200 {
            let problem = random(seed, 1 + seed as u32 % 14, 1 + seed as u32 % 4);
            let energy = Bounds::of(&Problem { objective: Objective::Energy, ..problem.clone() }).energy;
            let bounds = Bounds::of(&problem);
            assert!(bounds.energy.value <= energy.value, "paths only add, seed {seed}");
            for placement in (0..8).map(|n| random_placement(&problem, seed * 8 + n)) {
                let evaluation = Evaluation::of(&problem, placement).unwrap();
                assert!(bounds.latency.value.0 <= evaluation.latency().0 * (1.0 + 1e-9), "latency, seed {seed}");
                assert!(bounds.interval.value.0 <= evaluation.loads.interval().0 * (1.0 + 1e-9), "seed {seed}");
                assert!(bounds.peak.value <= evaluation.peak(), "peak, seed {seed}");
                assert!(energy.value.0 <= evaluation.energy.0 * (1.0 + 1e-9), "energy, seed {seed}");
            }
        }
    }

    #[test]
    fn the_critical_path_of_a_chain_is_its_optimum() {
        let problem = hand_made(&[(&[0], 5.0), (&[1], 7.0)]);
        let tails = critical_path::Tails::of(&problem);
        assert_eq!(tails.critical_path_length(&problem), Micros(12.0));
        let path: Vec<u32> = tails.critical_path(&problem).iter().map(|(group, _)| group.0).collect();
        assert_eq!(path, [0, 1]);
    }
}
