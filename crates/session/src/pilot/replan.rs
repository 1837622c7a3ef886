//! Alternates planning and measurement: a plan is computed with estimated costs of shards, its shards are measured, and
//! the plan is recomputed, until nothing is left to measure or no round is left.

use std::time::Instant;

use edgecut_plan::{
    Candidate, Plan, PlanRequest,
    adopt::adopted,
    planner::{self, within_memory},
    split,
};

use super::{
    agents::PilotAgents,
    error::PlanningError,
    in_context::InContextCosts,
    options::PilotOptions,
    progress::{PlanEvent, Progress},
    replanning::{Replanning, Solved},
};
use crate::request::shards::{ShardError, Shards};
use edgecut_agent::client::AgentError;

/// Makes plans for one request, and measures what they ask for.
pub struct Replanner<'a, 'r, 's> {
    pub agents: &'a PilotAgents<'a>,
    pub options: &'a PilotOptions,
    pub progress: &'a dyn Fn(PlanEvent),
    /// Without costs of shards.
    pub request: &'a PlanRequest<'r>,
    pub shards: &'a mut Shards<'s>,
}

/// What the strategies for limits on memory found.
struct WithinMemory<'r> {
    candidate: Candidate,
    /// At the costs that are known in the end.
    request: PlanRequest<'r>,
    /// Whether shards were measured for it.
    is_measured: bool,
}

impl<'r> Replanner<'_, 'r, '_> {
    /// The best plan, or the one that is nearest to limits and targets, and the request at the costs of shards that are
    /// known in the end. The same comes out the next time, unless this ends early: by a stop, a lost agent, the maximum number of
    /// rounds or [`PilotOptions::patience`].
    ///
    /// # Errors
    /// If some group runs nowhere, or a measurement cannot be stored.
    pub fn plan(&mut self) -> Result<(Candidate, PlanRequest<'r>), PlanningError> {
        if self.request.goal.like.is_some() {
            let request = self.with_known_shards();
            return Ok((planner::nearest(&request)?, request));
        }
        let begun = Instant::now();
        let mut rounds = 0;
        loop {
            let (solved, request) = self.solved()?;
            let found = self.within_memory(solved, request, begun)?;
            let is_over = rounds == self.options.replans() || self.is_impatient(begun) || self.is_stopped();
            // A search at the costs that were measured last may find another plan.
            if !found.is_measured || is_over {
                return Ok((found.candidate, found.request));
            }
            rounds += 1;
        }
    }

    /// `other` with its shards measured, and the request at the costs that are known then.
    ///
    /// # Errors
    /// If it is not a plan of this model and these devices, or a measurement cannot be stored.
    pub fn adopted(&mut self, other: &Plan) -> Result<(Candidate, PlanRequest<'r>), PlanningError> {
        let request = self.with_known_shards();
        let candidate = adopted(&request, other)?;
        if self.options.replans() == 0 {
            return Ok((candidate, request));
        }
        match self.measure(&candidate) {
            Ok(0) => Ok((candidate, request)),
            Ok(_) => {
                let request = self.with_known_shards();
                Ok((split::reevaluate(&request, &candidate)?, request))
            }
            Err(ShardError::Agent(why)) => Ok((self.unmeasured(candidate, &why), request)),
            Err(error) => Err(error.into()),
        }
    }

    /// The best plan without schedules.
    fn solved(&mut self) -> Result<(Candidate, PlanRequest<'r>), PlanningError> {
        let mut state = Replanning::new(self.options);
        let begun = Instant::now();
        loop {
            let request = self.with_known_shards();
            (self.progress)(PlanEvent::Searching);
            let candidate = split::nearest(&request, state.start())?;
            (self.progress)(PlanEvent::Found(Progress::of(&candidate)));
            if self.is_stopped() {
                let score = candidate.solution.evaluation.score;
                return Ok((state.better_measured(score).unwrap_or(candidate), request));
            }
            if state.is_exhausted() {
                return Ok((candidate, request));
            }
            if self.is_impatient(begun)
                && let Some(best) = state.unpromising(candidate.solution.evaluation.score)
            {
                return Ok((best, request));
            }
            let added = match self.measure(&candidate) {
                Err(ShardError::Agent(why)) => {
                    let best = state.into_measured().unwrap_or(candidate);
                    return Ok((self.unmeasured(best, &why), request));
                }
                added => added?,
            };
            let measured = match added {
                0 => candidate.clone(),
                _ => split::reevaluate(&self.with_known_shards(), &candidate)?,
            };
            let score = measured.solution.evaluation.score;
            state.keep(measured, score);
            let solved = Solved {
                choices: candidate.choices.clone(),
                is_split: !candidate.splits.is_empty(),
                score: candidate.solution.evaluation.score,
                plan: candidate,
            };
            if let Some(candidate) = state.record(solved, added) {
                return Ok((candidate, request));
            }
        }
    }

    /// `candidate`, in place of which no better one is looked for because of `why`.
    fn unmeasured(&self, mut candidate: Candidate, why: &AgentError) -> Candidate {
        (self.progress)(PlanEvent::AgentFailed(why.to_string()));
        candidate.notes.push(format!("not all shards that plans asked for were measured: {why}"));
        candidate
    }

    /// `solved`, or what the strategies for limits on memory find in its place, with its shards measured as far
    /// as rounds and agents allow: at estimated costs a candidate may look better than `solved` that is not. `begun` is when
    /// planning began, for [`PilotOptions::patience`].
    fn within_memory(
        &mut self,
        solved: Candidate,
        mut request: PlanRequest<'r>,
        begun: Instant,
    ) -> Result<WithinMemory<'r>, PlanningError> {
        if request.may_schedule() {
            (self.progress)(PlanEvent::SearchingSchedules);
        }
        let mut is_measured = false;
        let mut candidate = within_memory(&request, solved.clone());
        let rounds = if self.request.instance.is_limited() { self.options.replans() } else { 0 };
        for round in 1..=rounds {
            let is_settled = candidate.splits.is_empty() || candidate.is_scheduled();
            if is_settled || self.is_stopped() {
                break;
            }
            match self.measure(&candidate) {
                Ok(0) => break,
                Err(ShardError::Agent(why)) => {
                    candidate = self.unmeasured(candidate, &why);
                    break;
                }
                added => drop(added?),
            }
            is_measured = true;
            request = self.with_known_shards();
            let solved = split::reevaluate(&request, &solved)?;
            // No search follows: what it would find could not be measured, or needs time that is not left.
            if round == rounds || self.is_impatient(begun) || self.is_stopped() {
                candidate = split::reevaluate(&request, &candidate)?;
                let objective = request.goal.objective;
                if solved.rank(objective) < candidate.rank(objective) {
                    candidate = solved;
                }
                break;
            }
            candidate = within_memory(&request, solved);
        }
        Ok(WithinMemory { candidate, request, is_measured })
    }

    /// A candidate chosen by pilot runs, with the memory of its shards measured where that was an estimate, and the
    /// request at the costs that it is judged by. Agents, which enforce their limits, have run it: where its memory
    /// cannot be measured the candidate stays as it is. `request` is at the costs known before pilot runs, `known` what
    /// these showed.
    pub fn measure_memory(
        &mut self,
        mut candidate: Candidate,
        known: &InContextCosts,
        request: PlanRequest<'r>,
    ) -> (Candidate, PlanRequest<'r>) {
        if candidate.splits.is_empty() || candidate.is_scheduled() {
            let request = known.applied_to(&request);
            return (candidate, request);
        }
        match self.measure(&candidate) {
            Ok(0) => {}
            Ok(_) => {
                let now = known.applied_to(&self.with_known_shards());
                let found = split::reevaluate(&now, &candidate)
                    .and_then(|found| Ok(found.limited_to(&candidate)?))
                    .and_then(|found| split::met(&now, found));
                match found {
                    Ok(found) => return (found, now),
                    Err(why) => {
                        let what = "memory is as it was estimated before pilot runs; by what its shards take alone,";
                        candidate.notes.push(format!("{what} {why}"));
                    }
                }
            }
            Err(why) => {
                let what = "what its shards need of memory is an estimate, measuring them failed";
                candidate.notes.push(format!("{what}: {why}"));
            }
        }
        let request = known.applied_to(&request);
        (candidate, request)
    }

    fn is_stopped(&self) -> bool {
        self.request.goal.search.stop.is_requested()
    }

    fn is_impatient(&self, begun: Instant) -> bool {
        begun.elapsed() >= self.options.patience
    }

    /// The request with all that is known of shards.
    fn with_known_shards(&self) -> PlanRequest<'r> {
        self.request.with_shards(self.shards.costs())
    }

    /// Measures the shards of a candidate that were not measured, and counts them.
    fn measure(&mut self, candidate: &Candidate) -> Result<usize, ShardError> {
        let mut measured = 0;
        let mut each = |name: &str, number: usize, of: usize| {
            measured = number;
            (self.progress)(PlanEvent::MeasuringShard { name: name.to_string(), number, of });
        };
        let stop = self.request.goal.search.stop;
        let measuring = self.shards.measure(self.agents.fleet, &candidate.expanded, stop, &mut each);
        let added = self.agents.runtime.block_on(measuring)?;
        if measured > 0 {
            (self.progress)(PlanEvent::ShardsMeasured(measured));
        }
        Ok(added)
    }
}
