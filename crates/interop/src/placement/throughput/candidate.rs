//! An assignment of bundles to devices with its throughput objective.

use std::cmp::Ordering;

use crate::placement::{bundles::Bundles, load::Loads};

/// A device for every bundle, and how good that is.
#[derive(Debug, Clone, PartialEq)]
pub struct ThroughputCandidate {
    pub device: Vec<usize>,
    pub largest: f64,
    /// Bytes above the accelerators' memory.
    pub over: f64,
}

impl ThroughputCandidate {
    pub fn of(problem: &Bundles, device: Vec<usize>) -> ThroughputCandidate {
        let loads = Loads::new(problem, device);
        let allowed = loads
            .device
            .iter()
            .enumerate()
            .all(|(b, d)| *d >= problem.accelerators || problem.bundles[b].on_accelerator);
        let largest = if allowed { loads.largest() } else { f64::INFINITY };
        ThroughputCandidate { largest, over: loads.over(), device: loads.device }
    }

    /// The better one is less: within memory first, then the smaller load.
    pub fn cmp_quality(&self, other: &ThroughputCandidate) -> Ordering {
        self.over.total_cmp(&other.over).then(self.largest.total_cmp(&other.largest))
    }
}
