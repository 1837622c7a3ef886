//! Top-k sampling of a token from logits.

use crate::Error;

/// One of the `count` tokens with the largest logits, drawn by their softmax; of equal logits the first is larger.
///
/// # Errors
/// If there are no logits, or some are not numbers.
pub(super) fn sample(logits: &[f64], count: usize, random: &mut fastrand::Rng) -> Result<u64, Error> {
    if logits.is_empty() || logits.iter().any(|logit| logit.is_nan()) {
        return Err(Error::Failed("the logits are not numbers".into()));
    }
    let order = candidates(logits, count);
    let weights: Vec<f64> = order.iter().map(|at| (logits[*at] - logits[order[0]]).exp()).collect();
    let mut left = random.f64() * weights.iter().sum::<f64>();
    let drawn = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    Ok(order[drawn.unwrap_or(0)] as u64)
}

/// The `count` tokens with the largest logits, the largest first; of equal logits the first is larger.
pub(super) fn candidates(logits: &[f64], count: usize) -> Vec<usize> {
    let descending = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let count = count.min(order.len());
    if count > 0 {
        order.select_nth_unstable_by(count - 1, descending);
        order.truncate(count);
        order.sort_unstable_by(descending);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logit_or_one_of_the_largest_is_chosen() {
        let mut random = fastrand::Rng::with_seed(7);
        let logits = [1.0, 3.0, 3.0, f64::NEG_INFINITY, 2.0];
        assert_eq!(sample(&logits, 1, &mut random).unwrap(), 1);
        let mut drawn = [0; 5];
        for _ in 0..3000 {
            drawn[sample(&logits, 3, &mut random).unwrap() as usize] += 1;
        }
        assert_eq!((drawn[0], drawn[3]), (0, 0));
        // e⁰ : e⁰ : e⁻¹ of 3000 draws.
        for (at, share) in [(1, 0.422), (2, 0.422), (4, 0.155)] {
            let found = f64::from(drawn[at]) / 3000.0;
            assert!((found - share).abs() < 0.05, "{at}: {found}");
        }
        assert!(sample(&[f64::NAN], 1, &mut random).is_err());
        assert!(sample(&[], 1, &mut random).is_err());
        assert_eq!(sample(&[1.0], 9, &mut random).unwrap(), 0);
    }
}
