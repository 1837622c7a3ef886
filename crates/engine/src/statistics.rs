//! Order statistics of samples, since the distribution of times has a long tail. All reported medians and percentiles are
//! computed here.

use serde::{Deserialize, Serialize};

use edgecut_graph::units::Micros;

/// Number, median, median absolute deviation, minimum and 95th percentile of a set of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    pub n: u32,
    pub median: Micros,
    pub mad: Micros,
    pub min: Micros,
    pub p95: Micros,
}

impl Statistics {
    /// The statistics of `samples`; `None` if empty.
    pub fn of(samples: &[Micros]) -> Option<Statistics> {
        let sorted = sorted(samples);
        let median = quantile(&sorted, 0.5)?;
        let deviations: Vec<Micros> = sorted.iter().map(|s| Micros((s - median).abs())).collect();
        Some(Statistics {
            n: sorted.len() as u32,
            median: Micros(median),
            mad: Micros(quantile(&self::sorted(&deviations), 0.5)?),
            min: Micros(*sorted.first()?),
            p95: Micros(quantile(&sorted, 0.95)?),
        })
    }
}

/// The median; zero without samples.
pub fn median(samples: &[Micros]) -> Micros {
    percentile(samples, 0.5)
}

/// The `q`-quantile of samples in any order; zero without samples.
pub fn percentile(samples: &[Micros], q: f64) -> Micros {
    Micros(quantile(&sorted(samples), q).unwrap_or(0.0))
}

/// Half the width of the 95 % confidence interval of the median, as a fraction of the median.
///
/// The interval is distribution-free: between the order statistics of ranks n/2 ± 0.98 √n (normal approximation of the
/// binomial distribution; Conover, Practical Nonparametric Statistics, 3.2). `None` for fewer than six samples, for which
/// it does not exist.
pub fn median_uncertainty(samples: &[Micros]) -> Option<f64> {
    let n = samples.len();
    if n < 6 {
        return None;
    }
    let sorted = sorted(samples);
    let (half, spread) = (n as f64 / 2.0, 0.98 * (n as f64).sqrt());
    let low = sorted.get((half - spread).floor().max(1.0) as usize - 1)?;
    let high = sorted.get(((half + spread).ceil() as usize + 1).min(n) - 1)?;
    let median = quantile(&sorted, 0.5)?;
    Some((high - median).max(median - low) / median.max(f64::MIN_POSITIVE))
}

fn sorted(samples: &[Micros]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().map(|sample| sample.0).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// The `q`-quantile of sorted values, by linear interpolation; `None` without values.
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let at = q * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (*sorted.get(at.floor() as usize)?, *sorted.get(at.ceil() as usize)?);
    Some(below + (above - below) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(values: &[f64]) -> Vec<Micros> {
        values.iter().copied().map(Micros).collect()
    }

    #[test]
    fn statistics_of_known_sets() {
        let s = Statistics::of(&micros(&[9.0, 1.0, 3.0, 2.0, 100.0])).unwrap();
        assert_eq!((s.n, s.median.0, s.mad.0, s.min.0), (5, 3.0, 2.0, 1.0));
        assert!((s.p95.0 - 81.8).abs() < 1e-9);
        assert_eq!(Statistics::of(&[]), None);
        assert_eq!(Statistics::of(&micros(&[4.0])).unwrap().p95.0, 4.0);
    }

    #[test]
    fn the_interval_needs_six_samples_and_narrows() {
        assert_eq!(median_uncertainty(&micros(&[1.0; 5])), None);
        assert_eq!(median_uncertainty(&micros(&[1.0; 6])), Some(0.0));
        let spread = |n: usize| micros(&(0..n).map(|i| 100.0 + (i * 7 % 11) as f64).collect::<Vec<_>>());
        let (few, many) = (median_uncertainty(&spread(11)).unwrap(), median_uncertainty(&spread(1100)).unwrap());
        assert!(many < few && few < 0.06, "{few} {many}");
    }

    proptest::proptest! {
        #[test]
        fn order_does_not_matter(mut values in proptest::collection::vec(0.1f64..1e6, 6..60)) {
            let forward = (Statistics::of(&micros(&values)), median_uncertainty(&micros(&values)));
            values.reverse();
            proptest::prop_assert_eq!(forward, (Statistics::of(&micros(&values)), median_uncertainty(&micros(&values))));
        }
    }
}
