//! The cost of a link, fitted to timed transfers.

use crate::agent::protocol::probe::ProbeSample;
use edgecut_engine::statistics::{median, quantile};
use edgecut_graph::{
    FitError, LinkCost,
    units::{Bytes, Micros},
};

/// A link's cost and how well the samples agree with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ProbeFit {
    pub cost: LinkCost,
    /// Median of |predicted − measured| / measured.
    pub error: f64,
    pub largest: Bytes,
    pub samples: usize,
}

impl ProbeFit {
    /// Fits a + b·bytes to the one-way times: the round trips minus the acknowledgement, half an empty round trip.
    ///
    /// # Errors
    /// If the samples have fewer than two sizes apart from empty ones.
    pub fn of(samples: &[ProbeSample]) -> Result<ProbeFit, FitError> {
        let (empty, mut filled): (Vec<&ProbeSample>, Vec<&ProbeSample>) = samples.iter().partition(|s| s.bytes.0 == 0);
        let empty: Vec<Micros> = empty.iter().map(|s| s.round_trip).collect();
        let acknowledgement = Micros(median(&empty).0 / 2.0);
        // The slowest quarter of each size was delayed by something else.
        filled.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.round_trip.0.total_cmp(&b.round_trip.0)));
        let by_size = filled.chunk_by(|a, b| a.bytes == b.bytes);
        let kept = by_size.flat_map(|samples| &samples[..(samples.len() * 3).div_ceil(4)]);
        let one_way = |s: &ProbeSample| (s.round_trip - acknowledgement).max(Micros(0.5 * s.round_trip.0));
        let points: Vec<_> = kept.map(|s| (s.bytes, one_way(s))).collect();
        let cost = LinkCost::fit(&points)?;
        let deviation = |(bytes, time): &(Bytes, Micros)| (cost.time(*bytes).0 - time.0).abs() / time.0;
        let mut deviations: Vec<f64> = points.iter().map(deviation).collect();
        deviations.sort_unstable_by(f64::total_cmp);
        let error = quantile(&deviations, 0.5).unwrap_or_default();
        let largest = samples.iter().map(|s| s.bytes).max().unwrap_or_default();
        Ok(ProbeFit { cost, error, largest, samples: samples.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acknowledgement_and_delayed_samples_do_not_count() {
        let sample = |kib: u64| ProbeSample { bytes: Bytes(kib << 10), round_trip: Micros(300.0 + kib as f64 * 8.0) };
        let delayed = ProbeSample { round_trip: Micros(1e6), ..sample(16) };
        let samples = [sample(0), sample(1), sample(16), sample(16), sample(16), delayed, sample(256)];
        let fit = ProbeFit::of(&samples).unwrap();
        assert!((fit.cost.latency.0 - 150.0).abs() < 1e-6 && (fit.cost.rate.0 - 128.0).abs() < 1e-6, "{fit:?}");
        assert!(fit.error < 1e-9 && fit.largest == Bytes(256 << 10) && fit.samples == 7);
        assert!(ProbeFit::of(&[sample(0), sample(1)]).is_err());
    }
}
