//! Comparison of the tokens of a plan with those of one device.
//!
//! The device reads the plan's tokens, so that each token is compared after the same ones before. Where the plan's token has a logit
//! as large as that of the device's token, within tolerance, it is accepted.

use edgecut_agent::results::Tolerance;

use super::sampling::{candidates, sample};
use crate::Error;

/// The comparison, token after token.
pub(super) struct TokenCheck<'a> {
    /// The plan's tokens.
    found: &'a [u64],
    tolerance: Tolerance,
    top_k: usize,
    random: fastrand::Rng,
    /// Number of tokens that were accepted.
    pub accepted: usize,
    /// Of these, the tokens that are not those of the device.
    pub near_ties: usize,
    /// The first token of the device in the place of which the plan's is wrong.
    pub wanted: Option<u64>,
}

impl TokenCheck<'_> {
    /// A check of `found`, which were drawn with this seed from the `top_k` largest logits of a model with this tolerance.
    pub fn new(found: &[u64], tolerance: Tolerance, top_k: usize, seed: u64) -> TokenCheck<'_> {
        let random = fastrand::Rng::with_seed(seed);
        TokenCheck { found, tolerance, top_k, random, accepted: 0, near_ties: 0, wanted: None }
    }

    /// The token of the plan that follows, for which the device has these logits; `None` if it is wrong, or there is none.
    ///
    /// # Errors
    /// If some logits are not numbers.
    pub fn accept(&mut self, logits: &[f64]) -> Result<Option<u64>, Error> {
        let Some(found) = self.found.get(self.accepted).copied() else { return Ok(None) };
        let drawn = self.random.clone().f64();
        let wanted = sample(logits, self.top_k, &mut self.random)?;
        if found != wanted {
            if !self.is_near_tie(logits, found, drawn) {
                self.wanted = Some(wanted);
                return Ok(None);
            }
            self.near_ties += 1;
        }
        self.accepted += 1;
        Ok(Some(found))
    }

    /// Whether `found` may be what the random number `drawn` selects if each logit is off by the tolerance.
    fn is_near_tie(&self, logits: &[f64], found: u64, drawn: f64) -> bool {
        let Some(logit) = usize::try_from(found).ok().and_then(|found| logits.get(found)).copied() else {
            return false;
        };
        let candidates = candidates(logits, self.top_k);
        let (Some(best), Some(least)) = (candidates.first(), candidates.last()) else { return false };
        // What is masked has logits of any magnitude: half of them at most.
        let mut sizes: Vec<f64> = logits.iter().map(|logit| logit.abs()).collect();
        let middle = sizes.len() / 2;
        let median = *sizes.select_nth_unstable_by(middle, f64::total_cmp).1;
        let tolerance = self.tolerance.of_ties(logits[*best].abs().max(if median.is_finite() { median } else { 0.0 }));
        let gap = logits[*least] - logit;
        if !logit.is_finite() || gap.is_nan() || gap > tolerance {
            return false;
        }
        if self.top_k == 1 {
            return true;
        }
        // The interval of random numbers that select it, as wide as weights may be off.
        let weight = |at: &usize| (logits[*at] - logits[*best]).exp();
        let sum: f64 = candidates.iter().map(weight).sum();
        let before: f64 = candidates.iter().take_while(|at| **at as u64 != found).map(weight).sum();
        let (low, high) = (before / sum, (before + (logit - logits[*best]).exp()) / sum);
        let margin = tolerance.exp_m1();
        (low - margin..=high + margin).contains(&drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a token and two times token 1 are accepted, the number of near ties, and what was wanted.
    fn checked(logits: &[f64], found: u64, tolerance: Tolerance, top_k: usize) -> (usize, usize, Option<u64>) {
        let found = [found, 1];
        let mut check = TokenCheck::new(&found, tolerance, top_k, 0);
        for _ in 0..3 {
            check.accept(logits).unwrap();
        }
        (check.accepted, check.near_ties, check.wanted)
    }

    #[test]
    fn tokens_of_logits_as_large_as_the_largest_are_accepted() {
        use Tolerance::{Quantisation, Rounding};
        let logits = [-2.0, 10.0, 9.9, 3.0, f64::NEG_INFINITY, -1e9];
        for (found, tolerance, expected) in [
            (1, Rounding, (2, 0, None)),
            (2, Rounding, (0, 0, Some(1))),
            (2, Quantisation, (2, 1, None)),
            (3, Quantisation, (0, 0, Some(1))),
            (4, Quantisation, (0, 0, Some(1))),
            (5, Quantisation, (0, 0, Some(1))),
            (6, Quantisation, (0, 0, Some(1))),
        ] {
            assert_eq!(checked(&logits, found, tolerance, 1), expected, "{found} {tolerance:?}");
        }
    }

    #[test]
    fn of_several_candidates_those_are_accepted_that_the_random_number_may_select() {
        let draw = |seed: u64| fastrand::Rng::with_seed(seed).f64();
        let seed = (0..).find(|seed| (0.6..0.9).contains(&draw(*seed))).unwrap();
        let drawn = draw(seed);
        // Nearly all of the weight before the one that is found; and a boundary at the number.
        let boundary = [1.0 + (drawn / (1.0 - drawn)).ln(), 1.0];
        for (logits, found, expected) in [([20.0, 1.0], 1, 0), (boundary, 0, 1), (boundary, 1, 1)] {
            let mut check = TokenCheck::new(std::slice::from_ref(&found), Tolerance::Rounding, 2, seed);
            check.accept(&logits).unwrap();
            assert_eq!(check.accepted, expected, "{logits:?} {found} {drawn}");
        }
        assert_eq!(checked(&[1.0, 2.0, f64::NEG_INFINITY], 2, Tolerance::Quantisation, 3).0, 0);
    }
}
