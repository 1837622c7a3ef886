//! The progress of a search: by its work, and by the clock only where time would end it before its work is done.
//!
//! Annealing is worth little if it is cut off while the temperature is high. With a time limit, every round therefore gets
//! its share of the remaining time, and cools by whichever of work and time is further.

use std::time::{Duration, Instant};

use super::stop::Stop;

/// A start and an optional time limit.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    start: Instant,
    limit: Option<Duration>,
    stop: Stop,
}

/// One of several rounds.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    deadline: Deadline,
    /// Fractions of the time limit.
    from: f64,
    until: f64,
}

impl Deadline {
    /// A deadline `limit` from now.
    pub fn new(limit: Option<Duration>) -> Deadline {
        Deadline { start: Instant::now(), limit, stop: Stop::never() }
    }

    /// The same, and no later than `stop`.
    pub(crate) fn or_stop(limit: Option<Duration>, stop: Stop) -> Deadline {
        let limit = limit.into_iter().chain(stop.remaining()).min();
        Deadline { start: Instant::now(), limit, stop }
    }

    /// The elapsed fraction of the time limit; 0 without one.
    pub fn elapsed(&self) -> f64 {
        self.limit.map_or(0.0, |limit| self.start.elapsed().as_secs_f64() / limit.as_secs_f64().max(1e-9))
    }

    /// The given fraction of the remaining time; `None` without a time limit.
    pub fn remaining(&self, fraction: f64) -> Option<Duration> {
        self.limit.map(|limit| limit.mul_f64((1.0 - self.elapsed()).clamp(0.0, 1.0) * fraction))
    }

    pub fn has_passed(&self) -> bool {
        self.elapsed() >= 1.0 || self.stop.is_requested()
    }

    /// The first of `rounds` that share the remaining time.
    pub fn round(&self, rounds: usize) -> Round {
        let from = self.elapsed();
        Round { deadline: *self, from, until: from + (1.0 - from) / rounds.max(1) as f64 }
    }
}

impl Round {
    /// The progress of the round after `step` of `steps`, from 0 to 1.
    pub fn progress(&self, step: u64, steps: u64) -> f64 {
        let work = step as f64 / steps.max(1) as f64;
        let time = (self.deadline.elapsed() - self.from) / (self.until - self.from).max(1e-9);
        if self.deadline.has_passed() {
            return 1.0;
        }
        // The clock counts only once the work may not be done in time: until then the same work gives the same result.
        work.max(if self.deadline.limit.is_some() { 2.0 * time - 1.0 } else { 0.0 }).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_time_limit_only_work_counts() {
        let round = Deadline::new(None).round(3);
        assert_eq!((round.progress(1, 4), round.progress(4, 4)), (0.25, 1.0));
        assert!(!Deadline::new(None).has_passed());
    }

    #[test]
    fn an_expired_deadline_ends_every_round() {
        let deadline = Deadline::new(Some(Duration::ZERO));
        assert!(deadline.has_passed() && deadline.round(3).progress(0, 4) >= 1.0);
    }
}
