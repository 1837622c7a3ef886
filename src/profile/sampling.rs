//! When there are enough samples, and what is made of them.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::measure::Cost;
use crate::{
    engine::Sample,
    statistics::{Statistics, median, median_uncertainty},
    units::{Bytes, Micros},
};

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Enough once half the 95 % confidence interval of the median is below this fraction of it.
    pub precision: f64,
    /// For everything together; what is easy leaves more for the rest.
    pub budget: Micros,
}

/// A computation by one thread that gets less of the wall clock than this was disturbed by another process.
const UNDISTURBED: f64 = 0.95;
/// Taken whatever the budget says.
const FEWEST: usize = 5;
const MOST: usize = 2000;

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { precision: 0.02, budget: Micros(20e6) }
    }
}

/// The samples of one thing as they come.
#[derive(Debug, Default)]
pub(super) struct Samples {
    clean: Vec<Sample>,
    disturbed: Vec<Sample>,
    /// What the device may have of the processor's time, in cores', where that is less than its threads can use.
    quota: Option<f64>,
}

impl Samples {
    /// No samples yet, of a device of `threads` threads that may have `quota` cores' time; `None` without a limit.
    pub(super) fn new(threads: usize, quota: Option<f64>) -> Samples {
        Samples { quota: quota.filter(|quota| *quota < threads as f64), ..Samples::default() }
    }

    /// Adds a sample of a computation by `threads` threads. With several, idle ones are no sign of disturbance.
    pub(super) fn add(&mut self, sample: Sample, threads: usize) {
        let alone = threads > 1 || sample.cpu.0 >= UNDISTURBED * sample.wall.0;
        if alone { self.clean.push(sample) } else { self.disturbed.push(sample) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clean.is_empty() && self.disturbed.is_empty()
    }

    /// Undisturbed samples if there are enough of them, else all.
    fn used(&self) -> Vec<Sample> {
        match self.clean.len() >= FEWEST {
            true => self.clean.clone(),
            false => self.clean.iter().chain(&self.disturbed).copied().collect(),
        }
    }

    /// Whether to stop: the median is known well enough, or the time `until` has come.
    pub(super) fn enough(&self, sampling: &Sampling, until: Instant) -> bool {
        let taken = self.clean.len() + self.disturbed.len();
        if !(FEWEST..MOST).contains(&taken) {
            return taken >= MOST;
        }
        // Sorting at every sample of a long series would take longer than the samples.
        let look = taken < 32 || taken.is_multiple_of(16);
        let walls: Vec<Micros> = if look { self.clean.iter().map(|s| s.wall).collect() } else { Vec::new() };
        median_uncertainty(&walls).is_some_and(|u| u <= sampling.precision) || Instant::now() >= until
    }

    /// What the samples say; `None` if there are none.
    pub(super) fn cost(&self, held: Bytes) -> Option<Cost> {
        let used = self.used();
        // Rationed time comes in bursts, which are longer than most operators: see `crate::engine::processor_quota`.
        // With several cores' ration an operator of one thread takes no less than its own processor time.
        let rationed = |s: &Sample, quota: f64| Micros((s.cpu.0 / quota).max(s.wall.0.min(s.cpu.0)));
        let wall = |sample: &Sample| self.quota.map_or(sample.wall, |quota| rationed(sample, quota));
        let walls: Vec<Micros> = used.iter().map(wall).collect();
        let cpus: Vec<Micros> = used.iter().map(|s| s.cpu).collect();
        let kernels: Vec<Micros> = used.iter().filter_map(|s| s.kernels).collect();
        Some(Cost {
            time: Statistics::of(&walls)?,
            cpu: median(&cpus),
            kernels: (!kernels.is_empty()).then(|| median(&kernels)),
            workspace: used.iter().map(|s| s.workspace).max()?,
            held,
            disturbed: self.disturbed.len() as f64 / (self.clean.len() + self.disturbed.len()) as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(wall: f64, cpu: f64) -> Sample {
        Sample {
            wall: Micros(wall),
            cpu: Micros(cpu),
            kernels: None,
            workspace: Bytes(8),
            peak: Bytes(9),
            tensors: Bytes(1),
        }
    }

    #[test]
    fn disturbed_samples_are_left_out_while_others_are_there() {
        let mut samples = Samples::default();
        (0..4).for_each(|_| samples.add(sample(100.0, 50.0), 1));
        (0..4).for_each(|_| samples.add(sample(10.0, 10.0), 1));
        let cost = samples.cost(Bytes(1)).unwrap();
        assert_eq!((cost.time.n, cost.time.median.0, cost.disturbed), (8, 55.0, 0.5));
        samples.add(sample(10.0, 9.9), 1);
        let cost = samples.cost(Bytes(1)).unwrap();
        assert_eq!((cost.time.n, cost.time.median.0, cost.time.p95.0), (5, 10.0, 10.0));
        samples.add(sample(10.0, 2.0), 4);
        assert_eq!(samples.clean.len(), 6, "threads that wait are no disturbance");
        assert_eq!(Samples::default().cost(Bytes(1)), None);
    }

    #[test]
    fn rationed_time_is_processor_time_by_the_ration() {
        let mut samples = Samples::new(1, Some(0.25));
        (0..9).for_each(|_| samples.add(sample(10.0, 10.0), 1));
        assert_eq!(samples.cost(Bytes(1)).unwrap().time.median.0, 40.0);
        let mut samples = Samples::new(1, Some(1.0));
        (0..9).for_each(|_| samples.add(sample(10.0, 9.9), 1));
        assert_eq!(samples.cost(Bytes(1)).unwrap().time.median.0, 10.0, "no less than its thread can use");
    }

    #[test]
    fn sampling_ends_when_precise_or_out_of_time() {
        let sampling = Sampling::default();
        let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        let mut samples = Samples::default();
        (0..4).for_each(|_| samples.add(sample(10.0, 10.0), 1));
        assert!(!samples.enough(&sampling, past), "too few to say anything");
        samples.add(sample(20.0, 20.0), 1);
        assert!(samples.enough(&sampling, past) && !samples.enough(&sampling, future));
        (0..20).for_each(|_| samples.add(sample(10.0, 10.0), 1));
        assert!(samples.enough(&sampling, future));
    }
}
