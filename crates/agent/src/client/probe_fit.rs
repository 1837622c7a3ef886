//! The cost of a link, fitted to timed transfers.

use crate::protocol::probe::ProbeSample;
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
    /// Fits a + b·bytes to the median one-way time of each size: the round trips minus the acknowledgement, half the lower
    /// quartile of empty round trips.
    ///
    /// # Errors
    /// If the samples have fewer than two sizes apart from empty ones.
    pub fn of(samples: &[ProbeSample]) -> Result<ProbeFit, FitError> {
        let (empty, mut filled): (Vec<&ProbeSample>, Vec<&ProbeSample>) = samples.iter().partition(|s| s.bytes.0 == 0);
        let mut empty: Vec<f64> = empty.iter().map(|s| s.round_trip.0).collect();
        empty.sort_unstable_by(f64::total_cmp);
        // A server whose share of a core is capped is suspended during some, at times most, of the empty transfers.
        let acknowledgement = Micros(quantile(&empty, 0.25).unwrap_or_default() / 2.0);
        // The slowest quarter of each size was delayed by something else.
        filled.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.round_trip.0.total_cmp(&b.round_trip.0)));
        let by_size = filled.chunk_by(|a, b| a.bytes == b.bytes);
        let kept: Vec<&[&ProbeSample]> = by_size.map(|s| &s[..(s.len() * 3).div_ceil(4)]).collect();
        let one_way = |s: &&ProbeSample| (s.round_trip - acknowledgement).max(Micros(0.5 * s.round_trip.0));
        // One point a size: small transfers, of which there are more, would otherwise decide on the rate.
        let typical = |samples: &&[&ProbeSample]| {
            let times: Vec<Micros> = samples.iter().map(one_way).collect();
            samples.first().map(|first| (first.bytes, median(&times)))
        };
        let points: Vec<_> = kept.iter().filter_map(typical).collect();
        let cost = LinkCost::fit(&points)?;
        // A transfer takes at least as long as an acknowledgement. On a link whose bursts are faster than its rate, the line
        // through the larger transfers would say that small ones take no time.
        let least = points.iter().map(|(_, time)| *time).fold(acknowledgement, Micros::min);
        let cost = LinkCost { latency: cost.latency.max(least), ..cost };
        let points: Vec<_> = kept.concat().iter().map(|s| (s.bytes, one_way(s))).collect();
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
        let burst = |kib: u64, time: f64| ProbeSample { bytes: Bytes(kib << 10), round_trip: Micros(time) };
        let fit = ProbeFit::of(&[sample(0), burst(32, 350.0), burst(1024, 8300.0), burst(4096, 33000.0)]).unwrap();
        assert!(fit.cost.latency == Micros(150.0) && (fit.cost.rate.0 / 128.0 - 1.0).abs() < 0.15, "{fit:?}");
    }

    #[test]
    fn a_sender_that_is_suspended_now_and_then_does_not_change_the_rate() {
        let sample = |kib: u64, wait: f64| ProbeSample {
            bytes: Bytes(kib << 10),
            round_trip: Micros(200.0 + kib as f64 * 40.0 + wait),
        };
        // Half of the empty transfers and a third of the small ones wait for the next period.
        let empty = (0..24).map(|i| sample(0, if i % 2 == 0 { 2000.0 } else { 0.0 }));
        let small = (0..24).map(|i| sample(32, if i % 3 == 0 { 2000.0 } else { 0.0 }));
        let large = [128, 512, 2048].into_iter().flat_map(|kib| (0..8).map(move |_| sample(kib, 0.0)));
        let fit = ProbeFit::of(&empty.chain(small).chain(large).collect::<Vec<_>>()).unwrap();
        assert!((fit.cost.rate.0 - 25.6).abs() < 0.3, "{fit:?}");
    }
}
