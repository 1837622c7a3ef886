//! Device-placement workloads of Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators"
//! (NeurIPS 2020), with both of its objectives.
//!
//! These cost models differ from edgecut's own: accelerators pay for transfers as part of their load, CPUs never do. So
//! they have their own evaluators, searches, bounds and checker.
//!
//! | module | contents |
//! |---|---|
//! | [`file`] | the JSON format |
//! | [`bundles`] | the workload with the operators of one colour merged |
//! | [`load`] | throughput: the load of every device, updated incrementally |
//! | [`latency_evaluator`] | latency: the time at which one sample is finished |
//! | `order`, `segment` | linear orders, and the load of each contiguous segment of one |
//! | [`throughput`] | searches for the minimum largest load |
//! | [`latency`] | searches for the minimum latency |
//! | `exhaust` | enumeration of all assignments of small workloads |
//! | [`bound`] | lower bounds on both objectives |
//! | `cut` | throughput bound by minimum cuts |
//! | `path`, `border`, `inside` | latency bound by paths, with block boundaries and block interiors |
//! | [`check`] | independent checker: shares no code with the searches |

mod border;
pub mod bound;
pub mod bundles;
pub mod check;
mod cut;
mod exhaust;
mod feasibility;
pub mod file;
mod inside;
pub mod latency;
pub mod latency_evaluator;
pub mod load;
mod options;
mod order;
mod path;
mod segment;
pub mod solve;
pub mod throughput;

use std::fmt;

pub use file::PlacementWorkload;
pub use options::PlacementOptions;

/// Where an operator is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadDevice {
    Accelerator(u32),
    Cpu(u32),
}

/// An answer: a place for every operator, its value and what the value cannot go below.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementSolution {
    /// In the file's unit of time.
    pub objective: f64,
    pub bound: f64,
    pub bound_by: &'static str,
    /// In the order of the file's operators.
    pub places: Vec<WorkloadDevice>,
}

/// Why a workload has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlacementError {
    #[error(
        "operators {operators} need {need} bytes on an accelerator, which has {limit}, and there is no CPU for them"
    )]
    TooLarge { operators: String, need: f64, limit: f64 },
    #[error("the operators need {need} bytes, the {count} accelerators have {room} in total, and there is no CPU")]
    Memory { need: f64, room: f64, count: u32 },
    #[error("operators {operators} cannot run on an accelerator, and there is no CPU")]
    NoDevice { operators: String },
    #[error("no assignment that keeps within the accelerators' memory was found; the nearest is {over} bytes over")]
    NoneFound { over: f64 },
}

impl PlacementSolution {
    /// How far the objective may be above the best possible, as a fraction of the objective.
    pub fn gap(&self) -> f64 {
        if self.objective > 0.0 { ((self.objective - self.bound) / self.objective).max(0.0) } else { 0.0 }
    }
}

impl fmt::Display for WorkloadDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkloadDevice::Accelerator(index) => write!(f, "acc{index}"),
            WorkloadDevice::Cpu(index) => write!(f, "cpu{index}"),
        }
    }
}
