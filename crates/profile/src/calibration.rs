//! What operators and transfers take in a run and isolated profiles miss, as a few parameters of a device, and their fit to
//! steps that were timed in runs.
//!
//! In a run weights have left the caches since their last use, every step has to be called, and the processor that computes
//! also handles the messages that are sent and received meanwhile.

use edgecut_graph::DeviceName;
use edgecut_graph::units::{Bytes, Micros};
use serde::{Deserialize, Serialize};

use crate::ProfiledDevice;

/// The parameters of one device; all zero, with a factor of 1, where nothing is missed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Time in a run over the isolated time.
    pub factor: f64,
    /// Calling a step.
    pub step_us: Micros,
    /// Weights that are read from farther away, by megabyte (10⁶ bytes) of them.
    pub weights_us_per_mb: f64,
    /// Processor time of one message that is sent, and of its megabytes.
    pub send_us: Micros,
    pub send_us_per_mb: f64,
    pub receive_us: Micros,
    pub receive_us_per_mb: f64,
    /// From the last byte of a tensor to the start of the step that waits for it.
    pub exchange_us: Micros,
}

/// One step of a run on the device; of several runs their median, with the mean of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepSample {
    pub isolated: Micros,
    pub measured: Micros,
    pub weights: Bytes,
    /// Messages that began to be sent meanwhile, and what was on its way meanwhile.
    pub sends: f64,
    pub sent: Bytes,
    /// Messages that arrived meanwhile.
    pub receives: f64,
    pub received: Bytes,
}

/// The calibration of a device as a row of `calibration.csv`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationRow {
    pub server: String,
    pub device: String,
    pub hardware: String,
    pub engine: String,
    pub engine_version: String,
    pub threads: usize,
    pub factor: f64,
    pub step_us: Micros,
    pub weights_us_per_mb: f64,
    pub send_us: Micros,
    pub send_us_per_mb: f64,
    pub receive_us: Micros,
    pub receive_us_per_mb: f64,
    pub exchange_us: Micros,
    /// Mean of |predicted − measured| over the mean of measured step times, without and with the parameters.
    pub error_without: f64,
    pub error_with: f64,
    /// Number of timed steps, each the median of several runs.
    pub n: u32,
}

const FEATURES: usize = 7;
const MEGA: f64 = 1e6;

/// Steps much shorter than this count as much as this one: their times are mostly noise.
const SHORT: f64 = 100.0;
/// Residuals above this part of a step count less: something else disturbed it.
const USUAL_RESIDUAL: f64 = 0.1;
const REWEIGHTINGS: usize = 8;
/// Sweeps of coordinate descent; with seven parameters a few dozen are enough.
const SWEEPS: usize = 2000;
/// The speed of a device varies by as much from one minute to the next: more is no property of it.
const LARGEST_FACTOR: f64 = 1.25;

impl Default for Calibration {
    fn default() -> Calibration {
        Calibration {
            factor: 1.0,
            step_us: Micros::ZERO,
            weights_us_per_mb: 0.0,
            send_us: Micros::ZERO,
            send_us_per_mb: 0.0,
            receive_us: Micros::ZERO,
            receive_us_per_mb: 0.0,
            exchange_us: Micros::ZERO,
        }
    }
}

impl StepSample {
    fn features(&self) -> [f64; FEATURES] {
        let mb = |bytes: Bytes| bytes.0 as f64 / MEGA;
        [self.isolated.0, 1.0, mb(self.weights), self.sends, mb(self.sent), self.receives, mb(self.received)]
    }
}

impl Calibration {
    /// What a step takes without transfers, where it takes `isolated` alone and reads `weights`.
    pub fn time(&self, isolated: Micros, weights: Bytes) -> Micros {
        let weights = Micros(self.weights_us_per_mb * weights.0 as f64 / MEGA);
        Micros(self.factor * isolated.0) + self.step_us + weights
    }

    /// What the parameters say of a step of a run.
    fn predicted(&self, sample: &StepSample) -> f64 {
        let mb = |bytes: Bytes| bytes.0 as f64 / MEGA;
        let sending = sample.sends * self.send_us.0 + mb(sample.sent) * self.send_us_per_mb;
        let receiving = sample.receives * self.receive_us.0 + mb(sample.received) * self.receive_us_per_mb;
        self.time(sample.isolated, sample.weights).0 + sending + receiving
    }

    /// Least squares of the excess over the isolated time, no parameter negative, steps weighted by their times and
    /// outliers weighted down; `exchange` is known. Parameters that the samples show nothing of are zero.
    pub fn fit(samples: &[StepSample], exchange: Micros) -> Calibration {
        let excess: Vec<f64> = samples.iter().map(|s| s.measured.0 - s.isolated.0).collect();
        let rows: Vec<[f64; FEATURES]> = samples.iter().map(StepSample::features).collect();
        let scale: Vec<f64> = samples.iter().map(|s| s.isolated.0 + SHORT).collect();
        let mut found = [0.0; FEATURES];
        let mut weights: Vec<f64> = scale.iter().map(|scale| 1.0 / scale).collect();
        for _ in 0..REWEIGHTINGS {
            found = not_negative(&rows, &excess, &weights);
            found[0] = found[0].min(LARGEST_FACTOR - 1.0);
            for ((weight, scale), (row, excess)) in weights.iter_mut().zip(&scale).zip(rows.iter().zip(&excess)) {
                let residual = (dot(row, &found) - excess).abs() / (USUAL_RESIDUAL * scale);
                *weight = 1.0 / (scale * residual.max(1.0));
            }
        }
        Calibration {
            factor: 1.0 + found[0],
            step_us: Micros(found[1]),
            weights_us_per_mb: found[2],
            send_us: Micros(found[3]),
            send_us_per_mb: found[4],
            receive_us: Micros(found[5]),
            receive_us_per_mb: found[6],
            exchange_us: exchange.max(Micros::ZERO),
        }
    }

    /// Mean of |predicted − measured| over the mean of measured times.
    fn error(&self, samples: &[StepSample]) -> f64 {
        let off: f64 = samples.iter().map(|s| (self.predicted(s) - s.measured.0).abs()).sum();
        let all: f64 = samples.iter().map(|s| s.measured.0).sum();
        if all > 0.0 { off / all } else { 0.0 }
    }
}

fn dot(a: &[f64; FEATURES], b: &[f64; FEATURES]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The parameters that are not negative and minimise Σ weight · (row · parameters − value)², by coordinate descent on the
/// normal equations.
fn not_negative(rows: &[[f64; FEATURES]], values: &[f64], weights: &[f64]) -> [f64; FEATURES] {
    let (mut gram, mut right) = ([[0.0; FEATURES]; FEATURES], [0.0; FEATURES]);
    for ((row, value), weight) in rows.iter().zip(values).zip(weights) {
        for i in 0..FEATURES {
            right[i] += weight * row[i] * value;
            for j in 0..FEATURES {
                gram[i][j] += weight * row[i] * row[j];
            }
        }
    }
    let mut found = [0.0; FEATURES];
    for _ in 0..SWEEPS {
        for i in (0..FEATURES).filter(|i| gram[*i][*i] > 0.0) {
            let others = dot(&gram[i], &found) - gram[i][i] * found[i];
            found[i] = ((right[i] - others) / gram[i][i]).max(0.0);
        }
    }
    found
}

impl CalibrationRow {
    pub fn device_name(&self) -> DeviceName {
        DeviceName::new(self.server.as_str(), self.device.as_str())
    }

    /// The row of `device` with these parameters, fitted to `samples`.
    pub fn new(device: &ProfiledDevice, calibration: Calibration, samples: &[StepSample]) -> CalibrationRow {
        let Calibration { factor, step_us, weights_us_per_mb, exchange_us, .. } = calibration;
        let Calibration { send_us, send_us_per_mb, receive_us, receive_us_per_mb, .. } = calibration;
        CalibrationRow {
            server: device.server.clone(),
            device: device.device.clone(),
            hardware: device.hardware.clone(),
            engine: device.engine.name.clone(),
            engine_version: device.engine.version.clone(),
            threads: device.threads,
            factor,
            step_us,
            weights_us_per_mb,
            send_us,
            send_us_per_mb,
            receive_us,
            receive_us_per_mb,
            exchange_us,
            error_without: Calibration::default().error(samples),
            error_with: calibration.error(samples),
            n: samples.len() as u32,
        }
    }

    pub fn calibration(&self) -> Calibration {
        let CalibrationRow { factor, step_us, weights_us_per_mb, exchange_us, .. } = *self;
        let CalibrationRow { send_us, send_us_per_mb, receive_us, receive_us_per_mb, .. } = *self;
        Calibration {
            factor,
            step_us,
            weights_us_per_mb,
            send_us,
            send_us_per_mb,
            receive_us,
            receive_us_per_mb,
            exchange_us,
        }
    }

    /// Whether it is of the device of this name, whatever its hardware.
    pub fn is_named(&self, device: &ProfiledDevice) -> bool {
        (&self.server, &self.device) == (&device.server, &device.device)
    }

    /// Whether it is of this very device, with its engine and threads.
    pub fn is_of(&self, device: &ProfiledDevice) -> bool {
        self.is_named(device)
            && (&self.hardware, &self.engine, &self.engine_version, self.threads)
                == (&device.hardware, &device.engine.name, &device.engine.version, device.threads)
    }

    /// Whether all parameters are finite, none is negative, and the factor is of the order of 1.
    pub fn is_valid(&self) -> bool {
        let parameters = self.calibration();
        let times =
            [parameters.step_us, parameters.send_us, parameters.receive_us, parameters.exchange_us].map(|t| t.0);
        let rates = [parameters.weights_us_per_mb, parameters.send_us_per_mb, parameters.receive_us_per_mb];
        let is_amount = |value: &f64| value.is_finite() && *value >= 0.0;
        times.iter().chain(&rates).all(is_amount) && (0.1..=10.0).contains(&parameters.factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn samples(truth: &Calibration, noise: f64) -> Vec<StepSample> {
        let mut rng = Rng::with_seed(7);
        let sample = |_| {
            let (sends, receives) = (rng.u32(0..3), rng.u32(0..3));
            let mut sample = StepSample {
                isolated: Micros(20.0 + 3000.0 * rng.f64() * rng.f64()),
                measured: Micros::ZERO,
                weights: Bytes(rng.u64(0..10_000_000)),
                sends: f64::from(sends),
                sent: Bytes(u64::from(sends) * rng.u64(1000..300_000)),
                receives: f64::from(receives),
                received: Bytes(u64::from(receives) * rng.u64(1000..300_000)),
            };
            sample.measured = Micros(truth.predicted(&sample) * (1.0 + noise * (rng.f64() - 0.5)));
            sample
        };
        (0..600).map(sample).collect()
    }

    #[test]
    fn parameters_of_synthetic_steps_are_found_again() {
        let truth = Calibration {
            factor: 1.04,
            step_us: Micros(6.0),
            weights_us_per_mb: 45.0,
            send_us: Micros(60.0),
            send_us_per_mb: 3100.0,
            receive_us: Micros(90.0),
            receive_us_per_mb: 2500.0,
            exchange_us: Micros(35.0),
        };
        for (noise, tolerance) in [(0.0, 0.02), (0.04, 0.12)] {
            let mut found = samples(&truth, noise);
            // Some other process interrupted a few steps.
            found.iter_mut().step_by(40).for_each(|sample| sample.measured += Micros(8000.0));
            let fit = Calibration::fit(&found, truth.exchange_us);
            assert!((fit.factor - truth.factor).abs() < 0.02, "{fit:?}");
            for (got, want) in [
                (fit.weights_us_per_mb, 45.0),
                (fit.send_us.0, 60.0),
                (fit.send_us_per_mb, 3100.0),
                (fit.receive_us.0, 90.0),
                (fit.receive_us_per_mb, 2500.0),
            ] {
                assert!((got - want).abs() <= tolerance * want + 1.0, "{got} for {want}: {fit:?}");
            }
        }
    }

    #[test]
    fn what_samples_do_not_show_is_zero() {
        let truth = Calibration { weights_us_per_mb: 20.0, ..Calibration::default() };
        let mut alone = samples(&Calibration::default(), 0.0);
        for sample in &mut alone {
            *sample = StepSample { isolated: sample.isolated, weights: sample.weights, ..StepSample::default() };
            sample.measured = Micros(truth.predicted(sample));
        }
        let fit = Calibration::fit(&alone, Micros(-3.0));
        assert_eq!((fit.send_us, fit.receive_us_per_mb, fit.exchange_us), (Micros::ZERO, 0.0, Micros::ZERO));
        assert!((fit.weights_us_per_mb - 20.0).abs() < 0.1 && (fit.factor - 1.0).abs() < 1e-3, "{fit:?}");
        assert_eq!(Calibration::fit(&[], Micros::ZERO), Calibration::default());
    }

    #[test]
    fn steps_that_are_faster_than_isolated_ones_need_no_parameters() {
        let mut fast = samples(&Calibration::default(), 0.0);
        fast.iter_mut().for_each(|sample| sample.measured = Micros(0.9 * sample.isolated.0));
        assert_eq!(Calibration::fit(&fast, Micros::ZERO), Calibration::default());
    }
}
