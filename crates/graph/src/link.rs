//! What a transfer over a directed link costs, a + b·bytes, and the fit of that to timed transfers.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Micros, Rate};

/// The cost of a directed link: a transfer takes `latency` + bytes / `rate`. An infinite rate makes bytes free.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkCost {
    pub latency: Micros,
    pub rate: Rate,
}

/// Measured transfers that no line can be fitted to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("transfers of at least two sizes are needed to fit a link, {0} were measured")]
pub struct FitError(usize);

impl LinkCost {
    /// From the time that each byte takes, in microseconds.
    pub fn per_byte(latency: Micros, per_byte: f64) -> LinkCost {
        LinkCost { latency, rate: Rate(1.0 / per_byte) }
    }

    /// How long `bytes` occupy the link.
    pub fn time(&self, bytes: Bytes) -> Micros {
        Micros(self.latency.0 + bytes.0 as f64 * (1.0 / self.rate.0))
    }

    /// One link after another: every transfer takes the time of both.
    pub fn then(&self, next: &LinkCost) -> LinkCost {
        let per_byte = 1.0 / self.rate.0 + 1.0 / next.rate.0;
        LinkCost::per_byte(self.latency + next.latency, per_byte)
    }

    /// A link on which everything takes `factor` times as long.
    pub fn slower(&self, factor: f64) -> LinkCost {
        LinkCost { latency: Micros(factor * self.latency.0), rate: Rate(self.rate.0 / factor) }
    }

    /// Whether all transfers take a finite time that is not negative.
    pub fn is_valid(&self) -> bool {
        self.latency.0 >= 0.0 && self.latency.0.is_finite() && self.rate.0 > 0.0 && (1.0 / self.rate.0).is_finite()
    }

    /// Least squares of the *relative* error of a + b·bytes, with a ≥ 0.
    ///
    /// Sizes span four orders of magnitude: with absolute errors the largest transfers alone would decide,
    /// and the latency would be their noise. Each sample is weighted by 1/time².
    ///
    /// # Errors
    /// If fewer than two sizes were measured.
    pub fn fit(samples: &[(Bytes, Micros)]) -> Result<LinkCost, FitError> {
        let mut sizes: Vec<Bytes> = samples.iter().map(|s| s.0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() < 2 {
            return Err(FitError(sizes.len()));
        }
        let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (bytes, time) in samples {
            let (x, y) = (bytes.0 as f64, time.0.max(1e-3));
            let weight = 1.0 / (y * y);
            w += weight;
            wx += weight * x;
            wy += weight * y;
            wxx += weight * x * x;
            wxy += weight * x * y;
        }
        let slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
        let intercept = (wy - slope * wx) / w;
        let (latency, slope) = match intercept {
            a if a >= 0.0 => (a, slope),
            _ => (0.0, wxy / wxx),
        };
        // Noise on a link faster than the clock can tell may slope downwards; a petabyte a second stands for it.
        Ok(LinkCost { latency: Micros(latency), rate: Rate(1.0 / slope.max(1e-9)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZES: [u64; 8] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24];

    proptest! {
        #[test]
        fn a_line_is_found_again(latency in 0.0..5e4f64, rate in 0.05..2e4f64) {
            let truth = LinkCost { latency: Micros(latency), rate: Rate(rate) };
            let samples: Vec<_> = SIZES.map(|s| (Bytes(s), truth.time(Bytes(s)))).to_vec();
            let fit = LinkCost::fit(&samples).unwrap();
            prop_assert!((fit.latency.0 - latency).abs() <= 1e-6 * latency + 1e-3);
            prop_assert!((fit.rate.0 - rate).abs() <= 1e-6 * rate);
        }

        #[test]
        fn noise_of_a_tenth_moves_every_prediction_by_little_more(
            latency in 10.0..5e3f64, rate in 1.0..1e3f64, noise in prop::array::uniform8(-0.1..0.1f64)
        ) {
            let truth = LinkCost { latency: Micros(latency), rate: Rate(rate) };
            let noisy = |(s, e): (&u64, &f64)| (Bytes(*s), Micros(truth.time(Bytes(*s)).0 * (1.0 + e)));
            let fit = LinkCost::fit(&SIZES.iter().zip(&noise).map(noisy).collect::<Vec<_>>()).unwrap();
            for size in SIZES {
                let (want, got) = (truth.time(Bytes(size)).0, fit.time(Bytes(size)).0);
                prop_assert!((got - want).abs() <= 0.25 * want, "{size}: {got} for {want}");
            }
        }
    }

    #[test]
    fn links_compose() {
        let (a, b) = (LinkCost::per_byte(Micros(8.0), 0.1), LinkCost::per_byte(Micros(9.0), 0.05));
        let both = a.then(&b).time(Bytes(1000)).0;
        assert!((both - (a.time(Bytes(1000)).0 + b.time(Bytes(1000)).0)).abs() < 1e-9, "{both}");
        assert!((a.slower(3.0).time(Bytes(1000)).0 - 3.0 * a.time(Bytes(1000)).0).abs() < 1e-9);
        let free = LinkCost::per_byte(Micros(2.0), 0.0);
        assert_eq!((free.time(Bytes(u64::MAX)), free.is_valid()), (Micros(2.0), true));
        for (latency, rate) in
            [(-1.0, 1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (0.0, 0.0), (0.0, -1.0), (0.0, f64::NAN)]
        {
            assert!(!LinkCost { latency: Micros(latency), rate: Rate(rate) }.is_valid(), "{latency} {rate}");
        }
    }

    #[test]
    fn one_size_is_not_a_line() {
        assert!(LinkCost::fit(&[(Bytes(8), Micros(1.0)), (Bytes(8), Micros(2.0))]).is_err());
    }
}
