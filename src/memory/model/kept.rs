//! Which schedules to run until the smallest one is found that keeps its target when it runs, not only by prediction.

/// A first step between peaks, as a part of them; the steps double.
const STEP: f64 = 0.04;
/// Peaks that differ by a smaller part are as good as equal.
const CLOSE: f64 = 0.01;

/// The place of the smallest peak that `keeps` accepts, looked for from `first` on with at most so many `tries`;
/// `None` if none that was tried is accepted.
///
/// `peaks` rise, and what is larger is taken to be faster: from `first` in growing steps to where the answer changes,
/// then by halves between the two sides.
///
/// # Errors
/// As `keeps`.
pub fn smallest<E>(
    peaks: &[u64],
    first: usize,
    tries: usize,
    mut keeps: impl FnMut(usize) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    // All places below `low` are refused, and `kept` is the smallest one that is accepted.
    let (mut low, mut kept): (usize, Option<usize>) = (0, None);
    let (mut at, mut step) = (first, STEP);
    for _ in 0..tries {
        let high = kept.unwrap_or(peaks.len());
        if at >= high || at < low {
            break;
        }
        match keeps(at)? {
            true => kept = Some(at),
            false => low = at + 1,
        }
        let wanted = match (low.checked_sub(1).map(|refused| peaks[refused] as f64), kept.map(|at| peaks[at] as f64)) {
            (Some(refused), Some(kept)) if kept - refused <= CLOSE * kept => break,
            (Some(refused), Some(kept)) => (refused + kept) / 2.0,
            (Some(refused), None) => refused * (1.0 + step),
            (None, Some(kept)) => kept * (1.0 - step),
            (None, None) => break,
        };
        step *= 2.0;
        let last = kept.unwrap_or(peaks.len()).saturating_sub(1);
        at = peaks.partition_point(|&peak| (peak as f64) < wanted).clamp(low, last.max(low));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer and what was tried where places from `least` on keep the target.
    fn search(peaks: &[u64], first: usize, least: usize) -> (Option<usize>, Vec<usize>) {
        let mut tried = Vec::new();
        let found = smallest(peaks, first, 12, |at| {
            tried.push(at);
            Ok::<_, ()>(at >= least)
        });
        (found.unwrap(), tried)
    }

    #[test]
    fn the_smallest_is_found_from_both_sides() {
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
    fn few_and_none() {
        assert_eq!(search(&[], 0, 0), (None, vec![]));
        assert_eq!(search(&[5], 0, 0), (Some(0), vec![0]));
        assert_eq!(search(&[5], 0, 1), (None, vec![0]));
        // Near in place and far in size: the step reaches the next one at least.
        assert_eq!(search(&[5, 50], 0, 1), (Some(1), vec![0, 1]));
        assert_eq!(search(&[5, 50], 1, 0), (Some(0), vec![1, 0]));
        assert_eq!(search(&[5, 50, 500], 1, 9), (None, vec![1, 2]));
    }
}
