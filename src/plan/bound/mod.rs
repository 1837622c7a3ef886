//! What no plan can go below: one argument a file, and the best of them.
//!
//! | module | the argument |
//! |---|---|
//! | [`critical`] | no chain of groups is faster than on its best devices with the transfers between those |
//! | [`area`] | the work must be done somewhere: even fractions of groups, spread at will, load some device so much |
//! | [`holding`] | a group's operands, outputs, workspace and parameters are on one device together; all parameters are somewhere |

pub mod area;
pub mod critical;
pub mod holding;

use super::{Problem, problem::Objective};
use crate::units::{Bytes, Micros};

/// The bounds on everything that a plan is measured by.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    pub latency: Bounded<Micros>,
    /// On the time between results.
    pub interval: Bounded<Micros>,
    pub peak: Bounded<Bytes>,
}

/// A bound and the argument that gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounded<T> {
    pub value: T,
    pub by: &'static str,
}

impl Bounds {
    /// The strongest bounds that the arguments give.
    pub fn of(problem: &Problem) -> Bounds {
        let chain = critical::Tails::of(problem).shortest(problem);
        let area = area::interval(problem);
        let latency = match chain >= area {
            true => Bounded { value: chain, by: "longest chain of groups on its best devices" },
            false => Bounded { value: area, by: "all work spread evenly" },
        };
        let interval = Bounded { value: area, by: "all work spread evenly" };
        Bounds { latency, interval, peak: holding::peak(problem) }
    }

    /// The bound on the problem's objective, in its unit.
    pub fn on(&self, objective: Objective) -> Bounded<f64> {
        match objective {
            Objective::Latency => Bounded { value: self.latency.value.0, by: self.latency.by },
            Objective::Throughput => Bounded { value: self.interval.value.0, by: self.interval.by },
            Objective::Memory => Bounded { value: self.peak.value.0 as f64, by: self.peak.by },
        }
    }
}
