//! Strategies: ways to find a candidate, tried in order. One loop runs them, keeps the best, and keeps account.

use crate::{
    candidate::{
        Candidate,
        attempt::{Attempt, AttemptOutcome},
    },
    judge::no_plan::NoPlan,
    request::{PlanRequest, choice::Choices},
};

/// One way to find a candidate. Its head says why it is there.
pub(crate) trait Strategy {
    fn name(&self) -> &'static str;

    /// Why it is not tried now; `None` if it is.
    fn skip_reason(&self, progress: &Progress<'_, '_>) -> Option<&'static str>;

    /// # Errors
    /// If there is no candidate, and why.
    fn run(&self, progress: &mut Progress<'_, '_>) -> Result<StrategyResult, NoPlan>;

    /// Whether `found` takes the place of `best`, an earlier strategy's.
    fn is_kept(&self, request: &PlanRequest<'_>, found: &Candidate, best: &Candidate) -> bool {
        found.rank(request.goal.objective) < best.rank(request.goal.objective)
    }
}

/// The result of one strategy.
#[derive(Default)]
pub(crate) struct StrategyResult {
    pub found: Option<Candidate>,
    /// Placements that were evaluated.
    pub evaluations: u64,
}

/// State shared by the strategies of a request.
pub(crate) struct Progress<'a, 'g> {
    pub request: &'a PlanRequest<'g>,
    /// Splits to start from: those of a plan at other costs of shards.
    pub start: Option<&'a Choices>,
    pub best: Option<Candidate>,
    /// Candidates that miss limits or targets, for strategies that make them need less.
    pub infeasible: Vec<Candidate>,
    attempts: Vec<Attempt>,
}

impl<'a, 'g> Progress<'a, 'g> {
    pub fn new(request: &'a PlanRequest<'g>, start: Option<&'a Choices>) -> Progress<'a, 'g> {
        Progress { request, start, best: None, infeasible: Vec::new(), attempts: Vec::new() }
    }

    /// From the candidate that other strategies have found.
    pub fn from(request: &'a PlanRequest<'g>, mut best: Candidate) -> Progress<'a, 'g> {
        let attempts = std::mem::take(&mut best.attempts);
        Progress { best: Some(best), attempts, ..Progress::new(request, None) }
    }

    /// Tries `strategies` in order.
    ///
    /// # Errors
    /// That of the first strategy that fails before any has found a candidate.
    pub fn try_all(mut self, strategies: &[&dyn Strategy]) -> Result<Progress<'a, 'g>, NoPlan> {
        for strategy in strategies {
            let (outcome, evaluations, is_kept) = match strategy.skip_reason(&self) {
                Some(reason) => (AttemptOutcome::Skipped(reason), 0, false),
                None => self.attempt(*strategy)?,
            };
            self.record(Attempt { strategy: strategy.name(), outcome, evaluations, is_kept });
        }
        Ok(self)
    }

    /// Adds `attempt`, in place of an earlier one of the same strategy unless it was skipped this time.
    fn record(&mut self, mut attempt: Attempt) {
        if let Some(at) = self.attempts.iter().position(|earlier| earlier.strategy == attempt.strategy) {
            if matches!(attempt.outcome, AttemptOutcome::Skipped(_)) {
                return;
            }
            attempt.is_kept |= self.attempts.remove(at).is_kept;
        }
        if attempt.is_kept {
            self.attempts.iter_mut().for_each(|earlier| earlier.is_kept = false);
        }
        self.attempts.push(attempt);
    }

    fn attempt(&mut self, strategy: &dyn Strategy) -> Result<(AttemptOutcome, u64, bool), NoPlan> {
        let tried = match (strategy.run(self), &self.best) {
            (Err(why), None) => return Err(why),
            (tried, _) => tried.unwrap_or_default(),
        };
        let Some(found) = tried.found else { return Ok((AttemptOutcome::NoPlanFound, tried.evaluations, false)) };
        let outcome = match found.solution.missed.is_empty() {
            true => AttemptOutcome::Met(found.value(self.request.goal.objective)),
            false => AttemptOutcome::Missed(found.solution.missed.clone()),
        };
        let is_kept = self.best.as_ref().is_none_or(|best| strategy.is_kept(self.request, &found, best));
        if is_kept {
            self.best = Some(found);
        }
        Ok((outcome, tried.evaluations, is_kept))
    }

    /// The best candidate, with the account of all attempts.
    ///
    /// # Errors
    /// If none was found.
    pub fn finish(self) -> Result<Candidate, NoPlan> {
        let none = NoPlan::Targets { proven: false, shortages: Vec::new(), nearest: None };
        self.best.map(|best| Candidate { attempts: self.attempts, ..best }).ok_or(none)
    }
}
