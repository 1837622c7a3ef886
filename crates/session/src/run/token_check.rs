//! Comparison of the tokens of a plan with those of one device.
//!
//! The device reads the plan's tokens, so that each token is compared after the same ones before. Where its two best logits are as
//! close as rounding makes them, either token is right.

use edgecut_agent::results::Tolerance;

use super::sampling::{least_candidate, sample};
use crate::Error;

/// See the module's head.
pub(super) struct TokenCheck<'a> {
    /// The plan's tokens.
    found: &'a [u64],
    tolerance: Tolerance,
    top_k: usize,
    random: fastrand::Rng,
    /// Number of tokens that were compared and are right.
    pub right: usize,
    /// Of these, the tokens that are not those of the device.
    pub near_ties: usize,
    /// The first token of the device in the place of which the plan's is wrong.
    pub wanted: Option<u64>,
}

impl TokenCheck<'_> {
    /// A check of `found`, which were drawn with this seed from the `top_k` largest logits of a model with this tolerance.
    pub fn new(found: &[u64], tolerance: Tolerance, top_k: usize, seed: u64) -> TokenCheck<'_> {
        let random = fastrand::Rng::with_seed(seed);
        TokenCheck { found, tolerance, top_k, random, right: 0, near_ties: 0, wanted: None }
    }

    /// The token of the plan that follows, for which the device has these logits; `None` if it is wrong, or there is none.
    ///
    /// # Errors
    /// If some logits are not numbers.
    pub fn next(&mut self, logits: &[f64]) -> Result<Option<u64>, Error> {
        let Some(found) = self.found.get(self.right).copied() else { return Ok(None) };
        let wanted = sample(logits, self.top_k, &mut self.random)?;
        if found != wanted {
            let largest = logits.iter().filter(|logit| logit.is_finite()).fold(0.0, |a: f64, b| a.max(b.abs()));
            let logit = usize::try_from(found).ok().and_then(|found| logits.get(found)).copied();
            let gap = logit.map_or(f64::INFINITY, |logit| least_candidate(logits, self.top_k) - logit);
            if gap > self.tolerance.of_order(largest) {
                self.wanted = Some(wanted);
                return Ok(None);
            }
            self.near_ties += 1;
        }
        self.right += 1;
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_logits_as_large_as_the_largest_are_right() {
        let check = |found: u64, tolerance: Tolerance, top_k: usize| {
            let found = [found, 1];
            let mut check = TokenCheck::new(&found, tolerance, top_k, 0);
            for _ in 0..3 {
                check.next(&[-2.0, 10.0, 9.9, 3.0, f64::NEG_INFINITY]).unwrap();
            }
            (check.right, check.near_ties, check.wanted)
        };
        use Tolerance::{Quantisation, Rounding};
        for (found, tolerance, expected) in [
            (1, Rounding, (2, 0, None)),
            (2, Rounding, (0, 0, Some(1))),
            (2, Quantisation, (2, 1, None)),
            (3, Quantisation, (0, 0, Some(1))),
            (4, Quantisation, (0, 0, Some(1))),
            (5, Quantisation, (0, 0, Some(1))),
        ] {
            assert_eq!(check(found, tolerance, 1), expected, "{found} {tolerance:?}");
        }
        // Of two candidates either may be drawn.
        assert_eq!(check(2, Rounding, 2).0, 2);
        assert_eq!(check(3, Rounding, 2).0, 0);
    }
}
