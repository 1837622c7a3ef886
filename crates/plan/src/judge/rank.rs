//! The one rule of what is better: to miss less, then the better value, then the tie-break.
//!
//! Whatever is compared says how its rank is made: of a placement during a search ([`Score::rank`]), of a solution with
//! its arenas ([`Solution::rank`]), of a candidate by any objective ([`Candidate::rank`]). They differ in what counts as
//! violation, and in nothing else.
//!
//! [`Score::rank`]: crate::judge::evaluation::Score::rank
//! [`Solution::rank`]: crate::judge::solution::Solution::rank
//! [`Candidate::rank`]: crate::candidate::Candidate::rank

use std::cmp::Ordering;

/// How good something is; the smaller the better.
#[derive(Debug, Clone, Copy)]
pub struct Rank {
    /// By how much limits and targets are missed; 0 if all are met.
    violation: f64,
    /// The objective's value.
    value: f64,
    /// Compared last.
    tie: f64,
}

impl Rank {
    /// A rank without a tie-break.
    pub fn new(violation: f64, value: f64) -> Rank {
        Rank { violation, value, tie: 0.0 }
    }

    pub fn with_tie(self, tie: f64) -> Rank {
        Rank { tie, ..self }
    }

    /// Whether it is better than `other`: if both meet everything, by the factor `gain` at least.
    pub fn beats(&self, other: &Rank, gain: f64) -> bool {
        match self.is_met() && other.is_met() {
            true => self.value < gain * other.value,
            false => self < other,
        }
    }

    /// Whether all limits and targets are met.
    pub fn is_met(&self) -> bool {
        self.violation <= 0.0
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        let first = self.violation.total_cmp(&other.violation).then(self.value.total_cmp(&other.value));
        first.then(self.tie.total_cmp(&other.tie))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Rank) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rank {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_counts_before_the_value_and_the_value_before_the_tie_break() {
        let ranks = [
            Rank::new(0.0, 1.0).with_tie(9.0),
            Rank::new(0.0, 2.0).with_tie(1.0),
            Rank::new(0.0, 2.0).with_tie(2.0),
            Rank::new(0.1, 1.0),
            Rank::new(f64::INFINITY, 0.0),
        ];
        assert!(ranks.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_margin_is_of_the_value_where_nothing_is_missed() {
        let (met, missed) = (Rank::new(0.0, 100.0), Rank::new(0.1, 1.0));
        assert!(Rank::new(0.0, 96.0).beats(&met, 0.97) && !Rank::new(0.0, 98.0).beats(&met, 0.97));
        assert!(met.beats(&missed, 0.97) && !missed.beats(&met, 0.97));
        assert!(Rank::new(0.1, 0.99).beats(&missed, 0.97));
    }
}
