//! The samples of one item: when enough have been taken, and the cost they give.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Conditions, Cost};
use edgecut_engine::{
    Sample,
    statistics::{Statistics, median, median_uncertainty},
};
use edgecut_graph::units::{Bytes, Micros};

/// The stopping criterion of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Stop when half the 95 % confidence interval of the median is below this fraction of the median.
    pub precision: f64,
    /// Time for all items together; time that an item does not need is left to the others.
    pub budget: Micros,
}

/// A single-threaded computation whose CPU time is below this fraction of its wall-clock time was disturbed by another
/// process.
const UNDISTURBED_CPU_FRACTION: f64 = 0.95;
/// Samples that are taken even if the budget is exceeded.
const MIN_SAMPLES: usize = 5;
const MAX_SAMPLES: usize = 2000;

/// The longest budget.
const MAX_BUDGET: Duration = Duration::from_secs(86_400);

/// A precision or a budget that nothing can be measured with.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SamplingError {
    #[error("a precision of {0}: expected a number from 0 to 1")]
    Precision(f64),
    #[error("a budget of {0} us: expected at least 0, and at most a day")]
    Budget(f64),
}

impl Sampling {
    /// Whether it can be measured with.
    ///
    /// # Errors
    /// If the precision is not from 0 to 1, or the budget is negative, not a number, or longer than a day.
    pub fn check(&self) -> Result<(), SamplingError> {
        if !(0.0..=1.0).contains(&self.precision) {
            return Err(SamplingError::Precision(self.precision));
        }
        match (0.0..=1e6 * MAX_BUDGET.as_secs_f64()).contains(&self.budget.0) {
            true => Ok(()),
            false => Err(SamplingError::Budget(self.budget.0)),
        }
    }

    /// Two samplings that share the budget: the second has `share` of it.
    #[must_use]
    pub fn divided(self, share: f64) -> (Sampling, Sampling) {
        let with = |share: f64| Sampling { budget: Micros(self.budget.0 * share), ..self };
        (with(1.0 - share), with(share))
    }

    /// The budget; none if it is not valid.
    pub(super) fn duration(&self) -> Duration {
        self.budget.to_duration().unwrap_or_default().min(MAX_BUDGET)
    }
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling { precision: 0.02, budget: Micros(20e6) }
    }
}

/// The samples of one item, added as they are taken.
#[derive(Debug, Default)]
pub(super) struct Samples {
    clean: Vec<Sample>,
    disturbed: Vec<Sample>,
    /// CPU quota of the device in cores, if it is below what its threads can use.
    quota: Option<f64>,
}

impl Samples {
    /// An empty set of samples, for a device with `threads` threads and a CPU quota of `quota` cores, if it has one.
    pub(super) fn new(threads: usize, quota: Option<f64>) -> Samples {
        Samples { quota: quota.filter(|quota| *quota < threads as f64), ..Samples::default() }
    }

    /// Adds a sample of a computation by `threads` threads. With more than one, idle threads do not indicate a
    /// disturbance.
    pub(super) fn add(&mut self, sample: Sample, threads: usize) {
        let undisturbed = threads > 1 || sample.cpu.0 >= UNDISTURBED_CPU_FRACTION * sample.wall.0;
        if undisturbed { self.clean.push(sample) } else { self.disturbed.push(sample) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clean.is_empty() && self.disturbed.is_empty()
    }

    /// The undisturbed samples if there are enough, else all.
    fn used(&self) -> Vec<Sample> {
        match self.clean.len() >= MIN_SAMPLES {
            true => self.clean.clone(),
            false => self.clean.iter().chain(&self.disturbed).copied().collect(),
        }
    }

    /// Whether to stop: the median is precise enough, or the time `until` has passed.
    pub(super) fn enough(&self, sampling: &Sampling, until: Instant) -> bool {
        let taken = self.clean.len() + self.disturbed.len();
        if !(MIN_SAMPLES..MAX_SAMPLES).contains(&taken) {
            return taken >= MAX_SAMPLES;
        }
        // Sorting a long series at every sample would take longer than the samples.
        let check = taken < 32 || taken.is_multiple_of(16);
        let walls: Vec<Micros> = if check { self.clean.iter().map(|s| s.wall).collect() } else { Vec::new() };
        median_uncertainty(&walls).is_some_and(|u| u <= sampling.precision) || Instant::now() >= until
    }

    /// The cost that the samples give; `None` if there are none.
    pub(super) fn cost(&self, held: Bytes) -> Option<Cost> {
        let used = self.used();
        // A quota is enforced in periods that are longer than most operators: see `edgecut_engine::cpu_quota`. With a
        // quota of several cores, a single-threaded operator takes no less than its own CPU time.
        let throttled = |s: &Sample, quota: f64| Micros((s.cpu.0 / quota).max(s.wall.0.min(s.cpu.0)));
        let wall = |sample: &Sample| self.quota.map_or(sample.wall, |quota| throttled(sample, quota));
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
            energy: None,
            conditions: Conditions::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_and_budget_are_numbers_in_range() {
        let check = |precision, budget| Sampling { precision, budget: Micros(budget) }.check();
        for (precision, budget) in [(0.0, 0.0), (1.0, 86.4e9), (0.02, 20e6)] {
            assert_eq!(check(precision, budget), Ok(()));
        }
        for precision in [-0.1, 1.5, f64::NAN] {
            assert!(matches!(check(precision, 1.0), Err(SamplingError::Precision(_))), "{precision}");
        }
        for budget in [-1.0, 1e12, f64::NAN, f64::INFINITY] {
            assert!(matches!(check(0.02, budget), Err(SamplingError::Budget(_))), "{budget}");
        }
    }

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
    fn disturbed_samples_are_excluded_if_enough_others_exist() {
        let mut samples = Samples::default();
        (0..4).for_each(|_| samples.add(sample(100.0, 50.0), 1));
        (0..4).for_each(|_| samples.add(sample(10.0, 10.0), 1));
        let cost = samples.cost(Bytes(1)).unwrap();
        assert_eq!((cost.time.n, cost.time.median.0, cost.disturbed), (8, 55.0, 0.5));
        samples.add(sample(10.0, 9.9), 1);
        let cost = samples.cost(Bytes(1)).unwrap();
        assert_eq!((cost.time.n, cost.time.median.0, cost.time.p95.0), (5, 10.0, 10.0));
        samples.add(sample(10.0, 2.0), 4);
        assert_eq!(samples.clean.len(), 6, "idle threads are not a disturbance");
        assert_eq!(Samples::default().cost(Bytes(1)), None);
    }

    #[test]
    fn throttled_time_is_cpu_time_divided_by_the_quota() {
        let mut samples = Samples::new(1, Some(0.25));
        (0..9).for_each(|_| samples.add(sample(10.0, 10.0), 1));
        assert_eq!(samples.cost(Bytes(1)).unwrap().time.median.0, 40.0);
        let mut samples = Samples::new(1, Some(1.0));
        (0..9).for_each(|_| samples.add(sample(10.0, 9.9), 1));
        assert_eq!(
            samples.cost(Bytes(1)).unwrap().time.median.0,
            10.0,
            "a quota of a whole core does not slow one thread"
        );
    }

    #[test]
    fn sampling_ends_when_precise_or_out_of_time() {
        let sampling = Sampling::default();
        let (past, future) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
        let mut samples = Samples::default();
        (0..4).for_each(|_| samples.add(sample(10.0, 10.0), 1));
        assert!(!samples.enough(&sampling, past), "fewer than the minimum");
        samples.add(sample(20.0, 20.0), 1);
        assert!(samples.enough(&sampling, past) && !samples.enough(&sampling, future));
        (0..20).for_each(|_| samples.add(sample(10.0, 10.0), 1));
        assert!(samples.enough(&sampling, future));
    }
}
