//! Memory-saving schedules for unsplit groups, if no plan with splits meets limits and targets.

use super::{Front, Schedules, limits::unneeded};
use crate::{
    candidate::{
        Candidate,
        strategy::{Progress, Strategy, StrategyResult},
    },
    judge::no_plan::NoPlan,
    split::{bound::bound_by, strategy::Whole},
};

/// See the module's head.
pub(crate) struct Unsplit;

impl Strategy for Unsplit {
    fn name(&self) -> &'static str {
        "whole groups with schedules"
    }

    fn skip_reason(&self, progress: &Progress<'_, '_>) -> Option<&'static str> {
        let request = progress.request;
        if let Some(reason) = unneeded(request) {
            return Some(reason);
        }
        if progress.best.as_ref().is_some_and(|best| best.solution.missed.is_empty()) {
            return Some("another plan meets limits and targets");
        }
        if request.goal.search.stop.is_requested() {
            return Some("the search was stopped");
        }
        (!request.instance.can_split()).then_some("no group can be split")
    }

    fn run(&self, progress: &mut Progress<'_, '_>) -> Result<StrategyResult, NoPlan> {
        let whole = progress.request.unsplit();
        let mut found = Progress::new(&whole, None).try_all(&[&Whole, &Front, &Schedules])?.finish()?;
        let evaluations = Candidate::evaluations(&found);
        // Bounds on plans of whole groups do not hold for split ones.
        bound_by(progress.request, &mut found)?;
        Ok(StrategyResult { found: Some(found), evaluations })
    }
}
