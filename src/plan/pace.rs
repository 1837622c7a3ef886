//! How far a search has come: by its work, and by the clock only where time would cut it off before its work is done.
//!
//! A search that cools is worth little if it is cut off while it is hot. So where there is a time to stop, every round
//! gets its share of the time that is left, and cools by whichever of work and time is further.

use std::time::{Duration, Instant};

/// Time and what it is for.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    begun: Instant,
    cut_off: Option<Duration>,
}

/// One of several rounds.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    pace: Pace,
    /// Parts of all time.
    from: f64,
    until: f64,
}

impl Pace {
    pub fn new(cut_off: Option<Duration>) -> Pace {
        Pace { begun: Instant::now(), cut_off }
    }

    /// The part of all time that is over; 0 if there is no time to stop.
    pub fn used(&self) -> f64 {
        self.cut_off.map_or(0.0, |limit| self.begun.elapsed().as_secs_f64() / limit.as_secs_f64().max(1e-9))
    }

    /// A part of the time that is left; `None` if there is no time to stop.
    pub fn left(&self, part: f64) -> Option<Duration> {
        self.cut_off.map(|limit| limit.mul_f64((1.0 - self.used()).clamp(0.0, 1.0) * part))
    }

    pub fn is_late(&self) -> bool {
        self.used() >= 1.0
    }

    /// The first of `rounds` that share the time that is left.
    pub fn round(&self, rounds: usize) -> Round {
        let from = self.used();
        Round { pace: *self, from, until: from + (1.0 - from) / rounds.max(1) as f64 }
    }
}

impl Round {
    /// How much of the round is over after `step` of `steps`, from 0 to 1.
    pub fn progress(&self, step: u64, steps: u64) -> f64 {
        let work = step as f64 / steps.max(1) as f64;
        let time = (self.pace.used() - self.from) / (self.until - self.from).max(1e-9);
        if self.pace.is_late() {
            return 1.0;
        }
        // The clock has no say while the work may still be done in time: the same work then gives the same answer.
        work.max(if self.pace.cut_off.is_some() { 2.0 * time - 1.0 } else { 0.0 }).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_time_to_stop_only_work_counts() {
        let round = Pace::new(None).round(3);
        assert_eq!((round.progress(1, 4), round.progress(4, 4)), (0.25, 1.0));
        assert!(!Pace::new(None).is_late());
    }

    #[test]
    fn time_that_is_over_ends_every_round() {
        let pace = Pace::new(Some(Duration::ZERO));
        assert!(pace.is_late() && pace.round(3).progress(0, 4) >= 1.0);
    }
}
