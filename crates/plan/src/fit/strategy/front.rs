//! A plan of the Pareto front within the limits.

use super::limits::unneeded;
use crate::{
    candidate::strategy::{Progress, Strategy, StrategyResult},
    judge::no_plan::NoPlan,
    split::front::{alternatives, nearest_of},
};

/// See the module's head.
pub(crate) struct Front;

impl Strategy for Front {
    fn name(&self) -> &'static str {
        "Pareto front"
    }

    fn skip_reason(&self, progress: &Progress<'_, '_>) -> Option<&'static str> {
        unneeded(progress.request)
    }

    fn run(&self, progress: &mut Progress<'_, '_>) -> Result<StrategyResult, NoPlan> {
        let found = alternatives(progress.request)?;
        progress.infeasible.clone_from(&found.candidates);
        progress.infeasible.retain(|candidate| !candidate.solution.missed.is_empty());
        let best = nearest_of(progress.request.goal.objective, found.candidates);
        Ok(StrategyResult { found: best, evaluations: found.evaluations })
    }
}
