//! Placement problems from elsewhere: the device-placement JSON of Tarnawski et al., "Efficient Algorithms for
//! Device Placement of DNN Graph Operators" (NeurIPS 2020), with both of its cost models.
//!
//! These models are not edgecut's own: accelerators pay for transfers as part of their load, CPUs never do. So
//! they have their own figures, searches, bounds and checker.
//!
//! | module | what it does |
//! |---|---|
//! | [`file`] | reads the JSON |
//! | [`load`] | throughput: the load of every device, and what a move changes |
//! | [`finish`] | latency: when one sample is finished |
//! | [`order`], [`stretch`] | linear orders, and what each contiguous stretch of one costs |
//! | [`throughput`] | searches for the smallest largest load |
//! | [`latency`] | searches for the soonest finish |
//! | [`exhaust`] | every assignment, where there are few |
//! | [`bound`] | what no placement goes below |
//! | [`border`] | what a block of a path pays at its border |
//! | [`inside`] | what a block of a path has besides the path |
//! | [`cut`] | no accelerator pays less than a minimum cut around what it has |
//! | [`path`] | no path is faster than its best placement within all memory |
//! | [`check`] | judges an assignment from the file alone; shares no code with the rest |

pub mod border;
pub mod bound;
pub mod check;
pub mod cut;
pub mod exhaust;
pub mod file;
pub mod finish;
pub mod inside;
pub mod latency;
pub mod load;
pub mod order;
pub mod path;
pub mod stretch;
pub mod throughput;

use std::fmt;

pub use file::Workload;

/// Where an operator is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Accelerator(u32),
    Cpu(u32),
}

/// An answer: a place for every operator, its value and what the value cannot go below.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// In the file's unit of time.
    pub objective: f64,
    pub bound: f64,
    pub bound_by: &'static str,
    /// In the order of the file's operators.
    pub places: Vec<Place>,
}

/// Why a workload has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoAnswer {
    #[error(
        "operators {operators} need {need} bytes on an accelerator, which has {limit}, and there is no CPU for them"
    )]
    TooLarge { operators: String, need: f64, limit: f64 },
    #[error("the operators need {need} bytes, the {count} accelerators have {room} together, and there is no CPU")]
    Memory { need: f64, room: f64, count: u32 },
    #[error("operators {operators} run on no accelerator, and there is no CPU")]
    NoDevice { operators: String },
    #[error("no assignment that keeps within the accelerators' memory was found; the nearest is {over} bytes over")]
    NoneFound { over: f64 },
}

impl Answer {
    /// How far the objective may be above the best possible, as a fraction of the objective.
    pub fn gap(&self) -> f64 {
        if self.objective > 0.0 { ((self.objective - self.bound) / self.objective).max(0.0) } else { 0.0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Accelerator(index) => write!(f, "acc{index}"),
            Place::Cpu(index) => write!(f, "cpu{index}"),
        }
    }
}
