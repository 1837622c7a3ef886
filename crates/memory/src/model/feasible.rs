//! The smallest schedule that is feasible when measured: predictions may be wrong, and each measurement costs a run.

use edgecut_graph::units::Bytes;

/// First step between peaks, as a fraction of them; doubled at each step.
const STEP: f64 = 0.04;
/// Peaks that differ by less than this fraction count as equal.
const TOLERANCE: f64 = 0.01;

/// The index of the smallest of `peaks` that `is_feasible` accepts, starting from `first`, with at most `tries` calls;
/// `None` if it accepts none of those tried.
///
/// `peaks` are ascending, and a larger peak is assumed to be feasible if a smaller one is: exponential search from
/// `first` to where the answer changes, then bisection.
///
/// # Errors
/// As `is_feasible`.
pub fn smallest_feasible<E>(
    peaks: &[Bytes],
    first: usize,
    tries: usize,
    mut is_feasible: impl FnMut(usize) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    let peak = |index: usize| peaks[index].0 as f64;
    // All indices below `low` are infeasible; `feasible` is the smallest one accepted.
    let (mut low, mut feasible): (usize, Option<usize>) = (0, None);
    let (mut at, mut step) = (first, STEP);
    for _ in 0..tries {
        let high = feasible.unwrap_or(peaks.len());
        if at >= high || at < low {
            break;
        }
        match is_feasible(at)? {
            true => feasible = Some(at),
            false => low = at + 1,
        }
        let next = match (low.checked_sub(1).map(peak), feasible.map(peak)) {
            (Some(infeasible), Some(feasible)) if feasible - infeasible <= TOLERANCE * feasible => break,
            (Some(infeasible), Some(feasible)) => (infeasible + feasible) / 2.0,
            (Some(infeasible), None) => infeasible * (1.0 + step),
            (None, Some(feasible)) => feasible * (1.0 - step),
            (None, None) => break,
        };
        step *= 2.0;
        let last = feasible.unwrap_or(peaks.len()).saturating_sub(1);
        at = peaks.partition_point(|&peak| (peak.0 as f64) < next).clamp(low, last.max(low));
    }
    Ok(feasible)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result and the indices tried, where indices from `least` on are feasible.
    fn search(peaks: &[u64], first: usize, least: usize) -> (Option<usize>, Vec<usize>) {
        let peaks: Vec<Bytes> = peaks.iter().copied().map(Bytes).collect();
        let mut tried = Vec::new();
        let found = smallest_feasible(&peaks, first, 12, |at| {
            tried.push(at);
            Ok::<_, ()>(at >= least)
        });
        (found.unwrap(), tried)
    }

    #[test]
    fn the_smallest_feasible_peak_is_found_from_both_sides() {
        let peaks: Vec<u64> = (100..200).collect();
        for least in 0..100 {
            for first in [0, 10, 50, 99] {
                let (found, tried) = search(&peaks, first, least);
                let found = found.unwrap();
                assert!(found >= least && peaks[found] - peaks[least] <= 2, "{least} from {first}: {found}, {tried:?}");
                assert!(tried.iter().all(|at| tried.iter().filter(|other| *other == at).count() == 1), "{tried:?}");
            }
        }
    }

    #[test]
    fn few_peaks_and_none_feasible() {
        assert_eq!(search(&[], 0, 0), (None, vec![]));
        assert_eq!(search(&[5], 0, 0), (Some(0), vec![0]));
        assert_eq!(search(&[5], 0, 1), (None, vec![0]));
        // However far the next peak is, a step reaches it.
        assert_eq!(search(&[5, 50], 0, 1), (Some(1), vec![0, 1]));
        assert_eq!(search(&[5, 50], 1, 0), (Some(0), vec![1, 0]));
        assert_eq!(search(&[5, 50, 500], 1, 9), (None, vec![1, 2]));
    }
}
