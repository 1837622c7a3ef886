//! Termination of replanning: the decisions of [`Replanner`](super::replan::Replanner) as a state machine without agents.
//!
//! Each search either asks for shards that have not been measured, after which the next one continues from its splits with
//! better costs; or it asks for none. Then the search starts once more from the beginning, because another split may
//! look better now, and continues from that result as long as it gains. Where that takes long, it ends once estimates promise
//! little more than the best plan at measured costs.

use edgecut_plan::{evaluation::Score, split::choice::Choices};

use super::options::PilotOptions;

/// The result of one search.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Solved<T> {
    pub(super) plan: T,
    /// What it splits: where the next search may continue.
    pub(super) choices: Choices,
    pub(super) is_split: bool,
    pub(super) score: Score,
}

/// The state between two searches.
pub(super) struct Replanning<T> {
    max_rounds: usize,
    max_continuations: usize,
    gain: f64,
    min_rounds: usize,
    rounds: usize,
    continuations: usize,
    /// Where the next search continues; from the beginning if `None`.
    start: Option<Choices>,
    /// The best result of a search from the beginning with nothing left to measure, and of those that continued it.
    best: Option<Solved<T>>,
    /// The best plan at measured costs of its shards.
    measured: Option<(T, Score)>,
}

impl<T> Replanning<T> {
    pub(super) fn new(options: &PilotOptions) -> Replanning<T> {
        Replanning {
            max_rounds: options.replans(),
            max_continuations: options.continuations,
            gain: options.continuation_gain,
            min_rounds: options.min_replans,
            rounds: 0,
            continuations: 0,
            start: None,
            best: None,
            measured: None,
        }
    }

    /// The splits that the next search continues from.
    pub(super) fn start(&self) -> Option<&Choices> {
        self.start.as_ref()
    }

    /// Whether no round of measurements is left: the next result is final.
    pub(super) fn is_exhausted(&self) -> bool {
        self.rounds == self.max_rounds
    }

    /// Takes a plan whose shards are all measured.
    pub(super) fn keep(&mut self, plan: T, score: Score) {
        if self.measured.as_ref().is_none_or(|(_, best)| score.better(best)) {
            self.measured = Some((plan, score));
        }
    }

    /// The best plan at measured costs so far, if it is better than that of `score`, with which a search was stopped.
    pub(super) fn better_measured(self, score: Score) -> Option<T> {
        self.measured.filter(|(_, best)| best.better(&score)).map(|(plan, _)| plan)
    }

    /// The best plan at measured costs so far.
    pub(super) fn into_measured(self) -> Option<T> {
        self.measured.map(|(plan, _)| plan)
    }

    /// After several rounds of measurements the best plan at measured costs, if one of `score`, with estimates of some
    /// shards, promises too little more to measure these. Ends replanning.
    pub(super) fn unpromising(&mut self, score: Score) -> Option<T> {
        let (_, best) = self.measured.as_ref().filter(|_| self.rounds >= self.min_rounds)?;
        let is_promising = score.violation < best.violation || score.value < self.gain * best.value;
        if is_promising { None } else { self.measured.take().map(|(plan, _)| plan) }
    }

    /// Takes the result of a search, for which `added` measurements were added. Returns the final result, if this ends
    /// replanning.
    pub(super) fn record(&mut self, solved: Solved<T>, added: usize) -> Option<T> {
        if added > 0 {
            (self.start, self.best) = (Some(solved.choices), None);
            (self.rounds, self.continuations) = (self.rounds + 1, 0);
            return None;
        }
        let is_over = !solved.is_split || self.continuations == self.max_continuations;
        match (self.start.take(), self.best.take()) {
            // Nothing was left to measure of a search that continued another one: start from the beginning.
            (Some(_), None) => return None,
            (None, _) if is_over => return Some(solved.plan),
            (None, _) => {}
            (Some(_), Some(best)) => {
                let is_small = solved.score.violation >= best.score.violation
                    && solved.score.value >= self.gain * best.score.value;
                if is_over || is_small {
                    return Some(if solved.score.better(&best.score) { solved.plan } else { best.plan });
                }
            }
        }
        self.start = Some(solved.choices.clone());
        self.best = Some(solved);
        self.continuations += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solved(plan: &'static str, value: f64) -> Solved<&'static str> {
        let score = Score { value, ..Score::default() };
        Solved { plan, choices: Choices::new(), is_split: true, score }
    }

    /// What comes out of searches with these results, and how many of them there are. `added` are the measurements that
    /// each asks for.
    fn outcome(searches: &[(&'static str, f64, usize)], options: &PilotOptions) -> (Option<&'static str>, usize) {
        let mut state = Replanning::new(options);
        for (index, (plan, value, added)) in searches.iter().enumerate() {
            if state.is_exhausted() {
                return (Some(plan), index + 1);
            }
            if let Some(last) = state.record(solved(plan, *value), *added) {
                return (Some(last), index + 1);
            }
        }
        (None, searches.len())
    }

    #[test]
    fn searches_continue_while_they_gain() {
        let options = PilotOptions { rounds: 0, replans: 3, ..PilotOptions::default() };
        for (searches, want, count) in [
            // The first result needs no measurement; the second gains 10 %, the third 0.1 %.
            (&[("a", 100.0, 0), ("b", 90.0, 0), ("c", 89.91, 0)][..], Some("c"), 3),
            // A continuation that is worse is dropped.
            (&[("a", 100.0, 0), ("b", 120.0, 0)], Some("a"), 2),
            // Measured, continued with nothing left, from the beginning, continued without gain.
            (&[("a", 100.0, 5), ("b", 95.0, 0), ("c", 94.0, 0), ("d", 94.0, 0)], Some("c"), 4),
            // Measurements in a continuation start over: earlier results were estimates.
            (&[("a", 50.0, 0), ("b", 40.0, 2), ("c", 70.0, 0), ("d", 60.0, 0), ("e", 60.0, 0)], Some("d"), 5),
            // No round left: the result is taken as it is.
            (&[("a", 9.0, 1), ("b", 8.0, 1), ("c", 7.0, 1), ("d", 6.0, 1)], Some("d"), 4),
            // At most four continuations.
            (
                &[("a", 100.0, 0), ("b", 80.0, 0), ("c", 60.0, 0), ("d", 40.0, 0), ("e", 20.0, 0), ("f", 10.0, 0)],
                Some("e"),
                5,
            ),
        ] {
            assert_eq!(outcome(searches, &options), (want, count), "{searches:?}");
        }
    }

    #[test]
    fn estimates_that_promise_little_are_not_measured() {
        let options = PilotOptions { rounds: 0, ..PilotOptions::default() };
        let mut state = Replanning::new(&options);
        let score = |value: f64| Score { value, ..Score::default() };
        // Until the minimum number of rounds every estimate is measured.
        for round in 0..options.min_replans {
            assert_eq!(state.unpromising(score(99.0 + round as f64)), None);
            assert_eq!(state.record(solved("estimated", 99.0), 3), None);
            state.keep(if round == 1 { "best" } else { "measured" }, score(if round == 1 { 98.0 } else { 100.0 }));
        }
        assert_eq!(state.unpromising(score(97.0)), None);
        assert_eq!(state.unpromising(score(97.6)), Some("best"));
    }

    #[test]
    fn a_stopped_search_that_found_less_is_dropped() {
        let score = |violation: f64, value: f64| Score { violation, value, ..Score::default() };
        for (stopped, want) in
            [(score(0.0, 99.0), None), (score(0.0, 101.0), Some("measured")), (score(0.1, 50.0), Some("measured"))]
        {
            let mut state = Replanning::new(&PilotOptions::default());
            state.keep("measured", score(0.0, 100.0));
            assert_eq!(state.better_measured(stopped), want, "{stopped:?}");
        }
        assert_eq!(Replanning::<()>::new(&PilotOptions::default()).better_measured(score(1.0, 1.0)), None);
    }

    #[test]
    fn a_plan_without_splits_has_nothing_to_continue() {
        let mut state = Replanning::new(&PilotOptions::default());
        let whole = Solved { is_split: false, ..solved("whole", 1.0) };
        assert_eq!(state.record(whole, 0), Some("whole"));
    }
}
