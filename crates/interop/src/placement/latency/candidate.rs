//! An assignment of bundles to devices with its latency objective.

use std::cmp::Ordering;

use crate::placement::{bundles::Bundles, latency_evaluator::LatencyEvaluator};

/// A device for every bundle (accelerators first, then one number for all CPUs), and its latency; infinite if an operator cannot
/// be on its device.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyCandidate {
    pub device: Vec<usize>,
    pub latency: f64,
    /// Bytes above the accelerators' memory.
    pub over: f64,
}

impl LatencyCandidate {
    pub fn of(evaluator: &mut LatencyEvaluator<'_>, problem: &Bundles, device: Vec<usize>) -> LatencyCandidate {
        let mut sizes = vec![0.0; problem.accelerators];
        let mut allowed = true;
        for (bundle, &device) in problem.bundles.iter().zip(&device) {
            if device < problem.accelerators {
                sizes[device] += bundle.size;
                allowed &= bundle.on_accelerator;
            }
        }
        let over = problem.excess_bytes(&sizes);
        let latency = if allowed { evaluator.latency(&device) } else { f64::INFINITY };
        LatencyCandidate { device, latency, over }
    }

    /// The better one is less: within memory first, then the lower latency.
    pub fn cmp_quality(&self, other: &LatencyCandidate) -> Ordering {
        self.over.total_cmp(&other.over).then(self.latency.total_cmp(&other.latency))
    }
}
