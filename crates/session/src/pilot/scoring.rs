//! How finalists of pilot runs are compared: pure functions of their times.
//!
//! The speed of machines varies from minute to minute, so runs of finalists are interleaved: one run of each per turn.
//! Every run is compared with the mean of its turn.

use edgecut_engine::statistics::quantile;

/// The score of each finalist, the smaller the better: the median over all turns of its time relative to the mean of
/// all finalists in the same turn. `times` are by finalist and turn; a finalist that uses more than one device
/// (`false` in `single_device`) is penalised by the factor `min_gain`, because whatever disturbs any of its devices or
/// links disturbs it.
pub fn scores(times: &[Vec<f64>], single_device: &[bool], min_gain: f64) -> Vec<f64> {
    let turns = times.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |turn: usize| times.iter().map(|of| of[turn]).sum::<f64>() / times.len() as f64;
    let score = |(of, single): (&Vec<f64>, &bool)| {
        let mut relative: Vec<f64> = (0..turns).map(|turn| of[turn] / mean(turn)).collect();
        relative.sort_by(f64::total_cmp);
        quantile(&relative, 0.5).unwrap_or(1.0) * if *single { 1.0 } else { min_gain }
    };
    times.iter().zip(single_device).map(score).collect()
}

/// Which candidates are finalists: `times` and `single_device` describe candidates, the fastest first. The first
/// `count` and the fastest single-device candidate, as far as they are at most `max_slowdown` times as slow as the
/// fastest of all.
pub fn finalists(times: &[f64], single_device: &[bool], count: usize, max_slowdown: f64) -> Vec<bool> {
    let limit = times.first().map_or(0.0, |best| max_slowdown * best);
    let single = single_device.iter().position(|single| *single);
    let is_finalist = |(place, time): (usize, &f64)| (place < count || Some(place) == single) && *time <= limit;
    times.iter().enumerate().map(is_finalist).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_over_all_turns_is_first_and_a_second_device_must_gain_enough() {
        let order = |latencies: &[Vec<f64>], single: &[bool]| {
            let scores = scores(latencies, single, 1.03);
            let mut order: Vec<usize> = (0..scores.len()).collect();
            order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            order
        };
        // The second turn is slow for all.
        assert_eq!(order(&[vec![10.0, 30.0, 11.0], vec![8.0, 24.0, 9.0]], &[false, false]), [1, 0]);
        assert_eq!(order(&[vec![9.8, 19.6], vec![10.0, 20.0]], &[false, true]), [1, 0]);
        assert_eq!(order(&[vec![10.0, 20.0], vec![9.0, 18.0]], &[true, false]), [1, 0]);
        assert_eq!(order(&[vec![10.0], vec![9.0], vec![9.5]], &[false, false, false]), [1, 2, 0]);
        // A single candidate, or no turn, has nothing to be compared with.
        assert_eq!(order(&[vec![]], &[false]), [0]);
        assert_eq!(order(&[vec![], vec![]], &[false, false]), [0, 1]);
        assert_eq!(order(&[], &[]), [0; 0]);
        assert_eq!(order(&[vec![0.0], vec![0.0]], &[false, true]).len(), 2);
    }

    #[test]
    fn finalists_are_the_fastest_and_the_fastest_on_one_device() {
        for (times, single, want) in [
            (&[10.0, 11.0, 11.5, 11.9, 12.5][..], &[false; 5][..], &[true, true, true, false, false][..]),
            (&[10.0, 11.0, 11.5, 11.9, 12.0], &[false, false, false, false, true], &[true, true, true, false, true]),
            (&[10.0, 11.0, 11.5, 12.1], &[false, false, false, true], &[true, true, true, false]),
            (&[10.0, 13.0], &[false, false], &[true, false]),
            (&[], &[], &[]),
        ] {
            assert_eq!(finalists(times, single, 3, 1.2), want, "{times:?} {single:?}");
        }
    }
}
