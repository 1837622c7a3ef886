//! Groups split over devices where that gains.

use crate::{
    candidate::{
        Candidate,
        strategy::{Progress, Strategy, StrategyResult},
    },
    judge::{evaluation::Score, no_plan::NoPlan, solution::Solution},
    problem::DeviceId,
    request::{PlanRequest, choice::Choices, ratios::Ratios},
    search::options::Options,
    split::{placed::split_candidate, search},
};

/// The part (one over it) of the evaluations that each search for splits may take, and the placing of the groups that
/// stay whole.
const SEARCH_PART: u64 = 8;

/// Limit on the operators × devices that the search for splits expands in total, at the default number of evaluations:
/// large models get fewer.
const EXPANSION_BUDGET: u64 = 1_000_000;

/// See the module's head.
pub(crate) struct Split;

impl Strategy for Split {
    fn name(&self) -> &'static str {
        "split groups"
    }

    fn skip_reason(&self, progress: &Progress<'_, '_>) -> Option<&'static str> {
        impossible(progress.request)
    }

    fn run(&self, progress: &mut Progress<'_, '_>) -> Result<StrategyResult, NoPlan> {
        let request = progress.request;
        let Some(first) = &progress.best else { return Ok(StrategyResult::default()) };
        let groups = request.instance.split_options.groups.len();
        let budget = budget(request);
        // Groups stay where the plan without splits has them; if that is no plan, also where no limit was looked at.
        let mut homes = vec![first.solution.evaluation.placement.devices.clone()];
        if !first.solution.missed.is_empty() {
            homes.push(vec![request.instance.network.source; groups]);
        }
        let mut tried = StrategyResult::default();
        for homes in homes {
            let Some(found) = split_from(request, &homes, &first.solution, budget, progress.start) else { continue };
            tried.evaluations += found.solution.evaluations;
            if tried.found.as_ref().is_none_or(|best| found.solution.rank() < best.solution.rank()) {
                tried.found = Some(found);
            }
        }
        if let Some(found) = &mut tried.found {
            found.whole = first.whole;
        }
        Ok(tried)
    }

    /// By any rule but [`Ratios::Tuned`] what is best to split is split, although leaving it whole may be better.
    fn is_kept(&self, request: &PlanRequest<'_>, found: &Candidate, best: &Candidate) -> bool {
        request.goal.ratios != Ratios::Tuned || found.solution.rank() < best.solution.rank()
    }
}

/// Why no group of `request` can be split, if none can.
pub(super) fn impossible(request: &PlanRequest<'_>) -> Option<&'static str> {
    if request.goal.like.is_some() {
        return Some("the splits are fixed");
    }
    if request.instance.network.devices.len() < 2 {
        return Some("there is one device");
    }
    (!request.instance.can_split()).then_some("no group can be split")
}

/// The evaluations of one search for splits.
fn budget(request: &PlanRequest<'_>) -> u64 {
    let size = request.instance.split_options.graph.operators().len() * request.instance.network.devices.len();
    let groups = request.instance.split_options.groups.len();
    let evaluations = request.goal.search.evaluations(groups);
    let usual = Options { budget: None, ..request.goal.search }.evaluations(groups).max(1);
    let expansions = EXPANSION_BUDGET.saturating_mul(evaluations.max(usual)) / usual;
    (evaluations / SEARCH_PART).min(expansions / size.max(1) as u64).max(8)
}

/// The best plan that the search for splits finds from groups on `homes`, if it finds one that may be better than `first`.
fn split_from(
    request: &PlanRequest<'_>,
    homes: &[DeviceId],
    first: &Solution,
    budget: u64,
    start: Option<&Choices>,
) -> Option<Candidate> {
    let floor = match first.missed.is_empty() {
        true => first.evaluation.score,
        false => Score { violation: f64::INFINITY, ..Default::default() },
    };
    let found = search::search(request, homes, floor, budget, start)?;
    let few = Options { budget: Some(budget.max(64)), ..request.goal.search };
    // Other ratios have other shards.
    let known = Some(found.devices).filter(|_| request.applied(found.choices.clone()) == found.choices);
    let mut candidate = split_candidate(request, found.choices, |_| known, &few).ok()?;
    candidate.solution.evaluations += found.evaluations;
    Some(candidate)
}
