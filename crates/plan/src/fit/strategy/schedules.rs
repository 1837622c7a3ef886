//! Schedules that need less memory, for the plans that exceed the limits.

use super::limits::{MIN_GAIN, unneeded};
use crate::{
    candidate::{
        Candidate,
        strategy::{Progress, Strategy, StrategyResult},
    },
    fit::constrained::best_schedules,
    judge::no_plan::NoPlan,
    request::PlanRequest,
};

/// See the module's head.
pub(crate) struct Schedules;

impl Strategy for Schedules {
    fn name(&self) -> &'static str {
        "memory-saving schedules"
    }

    fn skip_reason(&self, progress: &Progress<'_, '_>) -> Option<&'static str> {
        let is_enough = |best: &Candidate| best.solution.missed.is_empty() && best.solution.gap() <= 1.0 - MIN_GAIN;
        let is_enough = progress.best.as_ref().is_some_and(is_enough);
        unneeded(progress.request).or(is_enough.then_some("another plan is within 3 % of its bound"))
    }

    fn run(&self, progress: &mut Progress<'_, '_>) -> Result<StrategyResult, NoPlan> {
        Ok(best_schedules(progress.request, std::mem::take(&mut progress.infeasible)))
    }

    fn is_kept(&self, request: &PlanRequest<'_>, found: &Candidate, best: &Candidate) -> bool {
        found.rank(request.goal.objective).beats(&best.rank(request.goal.objective), MIN_GAIN)
    }
}
