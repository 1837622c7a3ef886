//! One measured run.

use serde::{Deserialize, Serialize};

use edgecut_graph::units::{Bytes, Micros};

/// Time and memory of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Wall-clock time of the computation alone.
    pub wall: Micros,
    /// CPU time of all threads that took part.
    pub cpu: Micros,
    /// On a GPU, the time from the first to the last kernel, by the device's clock.
    pub kernels: Option<Micros>,
    /// Peak memory allocated while running, beyond the results.
    pub workspace: Bytes,
    /// Peak memory while running: live tensors of the graph, operands and results included, and workspace; without what
    /// is loaded.
    pub peak: Bytes,
    /// Tensors alone: operands, and everything live after the step.
    #[serde(default)]
    pub tensors: Bytes,
}

impl Sample {
    /// The sample of both computations, `next` after this one.
    pub fn then(self, next: Sample) -> Sample {
        Sample {
            wall: self.wall + next.wall,
            cpu: self.cpu + next.cpu,
            kernels: self.kernels.zip(next.kernels).map(|(first, then)| first + then),
            workspace: self.workspace.max(next.workspace),
            peak: self.peak.max(next.peak),
            tensors: self.tensors.max(next.tensors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_consecutive_computations_add_and_memory_is_the_maximum() {
        let sample = |time: f64, bytes: u64, kernels: Option<f64>| Sample {
            wall: Micros(time),
            cpu: Micros(time / 2.0),
            kernels: kernels.map(Micros),
            workspace: Bytes(bytes),
            peak: Bytes(100 - bytes),
            tensors: Bytes(bytes),
        };
        let both = sample(4.0, 10, Some(1.0)).then(sample(2.0, 30, Some(2.0)));
        assert_eq!((both.wall, both.cpu, both.kernels), (Micros(6.0), Micros(3.0), Some(Micros(3.0))));
        assert_eq!((both.workspace, both.peak, both.tensors), (Bytes(30), Bytes(90), Bytes(30)));
        assert_eq!(sample(1.0, 1, Some(1.0)).then(sample(1.0, 1, None)).kernels, None);
    }
}
