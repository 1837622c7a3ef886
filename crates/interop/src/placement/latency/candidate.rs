//! An assignment of bundles to devices with its latency objective.

use crate::placement::{latency_evaluator::LatencyEvaluator, load::Bundles};

/// A device for every bundle (accelerators first, then one number for all CPUs), and when that finishes.
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
        let over = sizes.iter().map(|size| (size - problem.memory).max(0.0)).sum();
        let latency = if allowed { evaluator.latency(&device) } else { f64::INFINITY };
        LatencyCandidate { device, latency, over }
    }

    /// Whether this is to be preferred: within memory first, then the sooner finish.
    pub fn better(&self, other: &LatencyCandidate) -> bool {
        self.over.total_cmp(&other.over).then(self.latency.total_cmp(&other.latency)).is_lt()
    }
}
