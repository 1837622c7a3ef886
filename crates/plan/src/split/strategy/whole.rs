//! Every group whole on one device.

use super::split;
use crate::{
    candidate::{
        Candidate,
        strategy::{Progress, Strategy, StrategyResult},
    },
    judge::no_plan::NoPlan,
    request::choice::Choices,
    search::solve,
    split::bound::bound_by,
};

/// See the module's head.
pub(crate) struct Whole;

impl Strategy for Whole {
    fn name(&self) -> &'static str {
        "whole groups"
    }

    fn skip_reason(&self, progress: &Progress<'_, '_>) -> Option<&'static str> {
        progress.request.goal.like.is_some().then_some("the splits are fixed")
    }

    fn run(&self, progress: &mut Progress<'_, '_>) -> Result<StrategyResult, NoPlan> {
        let request = progress.request;
        let unsplit = request.expanded(&Choices::new())?;
        let solution = solve::nearest(&unsplit.problem, &request.goal.search)?;
        let (evaluations, is_met) = (solution.evaluations, solution.missed.is_empty());
        let mut candidate = Candidate::whole(solution, unsplit);
        // Splits are compared with plans only.
        candidate.whole = candidate.whole.filter(|_| is_met || split::impossible(request).is_some());
        bound_by(request, &mut candidate)?;
        Ok(StrategyResult { found: Some(candidate), evaluations })
    }
}
