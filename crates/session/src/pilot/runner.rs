//! Runs candidates on the agents, learns from what they take, and chooses among them.

use std::{cmp::Ordering, collections::VecDeque};

use edgecut_graph::units::Micros;
use edgecut_plan::{
    Candidate, CostSource, GroupId, NoPlan, PlanRequest, Stop,
    evaluation::Evaluation,
    planner,
    problem::{Objective, ProblemError},
    split,
};

use super::{
    agents::PilotAgents,
    candidates::{add_alternatives, by_ratio_rules, keeps_memory},
    error::PlanningError,
    in_context::InContextCosts,
    memory_reserve::MemoryReserve,
    options::PilotOptions,
    outcome::{PilotError, PilotOutcome},
    progress::PlanEvent,
    scoring::{finalists, scores},
};
use crate::run::perform::PerformError;

/// Runs candidates of one request.
pub struct PilotRunner<'a> {
    pub agents: &'a PilotAgents<'a>,
    pub options: &'a PilotOptions,
    pub progress: &'a dyn Fn(PlanEvent),
    /// At the costs of profiles and of measured shards.
    pub request: &'a PlanRequest<'a>,
}

/// A candidate that was run.
#[derive(Clone)]
struct Trial {
    candidate: Candidate,
    outcome: PilotOutcome,
}

impl PilotRunner<'_> {
    /// The chosen candidate, and the costs measured in context. Runs `first` and its alternatives, then in every
    /// further round the candidate that the search finds with the costs measured so far, in the second round also what
    /// `first` splits in other ratios, and last the finalists, interleaved. Once an agent fails, the best of those that have run
    /// is chosen.
    ///
    /// # Errors
    /// If no candidate fits the memory that agents have left, none meets the targets at its measured times, or an agent
    /// fails before any has run.
    pub fn run(&self, first: Candidate) -> Result<(Candidate, InContextCosts), PlanningError> {
        let mut known = InContextCosts::default();
        let mut reserve = MemoryReserve::default();
        let mut trials: Vec<Trial> = Vec::new();
        let is_free = self.request.goal.is_free();
        let rounds = if is_free { self.options.rounds } else { 1 };
        let (mut next, mut variants) = self.first_candidates(first);
        if rounds == 1 {
            next.append(&mut variants);
        }
        let (mut failure, mut refused): (Option<PilotError>, usize) = (None, 0);
        'rounds: for round in 0..rounds {
            // What agents refuse may fit in other ratios.
            while let Some(candidate) =
                next.pop_front().or_else(|| if trials.is_empty() { variants.pop_front() } else { None })
            {
                if !trials.is_empty() && self.is_stopped() {
                    break;
                }
                match self.trial(candidate, &mut known, &mut reserve) {
                    Err(PlanningError::Pilot(why)) if why.is_of_agent() && !trials.is_empty() => {
                        failure = Some(why);
                        break 'rounds;
                    }
                    // What was refused is no plan to fall back to.
                    Err(PlanningError::Pilot(why)) if why.is_of_agent() && refused > 0 => {
                        return Err(PlanningError::LostAfterRefusal(why));
                    }
                    trial => match trial? {
                        Some(trial) => trials.push(trial),
                        None => refused += 1,
                    },
                }
            }
            if trials.is_empty() && is_free {
                trials.extend(self.with_memory_reserve(&mut known, &mut reserve)?);
            }
            let (Some(fastest), true) = (fastest(&trials), is_free) else { break };
            if round + 1 < rounds && !self.is_stopped() {
                // First from the splits of the fastest, then from the beginning: another split may look better now.
                let start = (round % 2 == 0).then_some(&fastest.candidate.choices);
                let less = reserve.applied_to(&known.applied_to(self.request));
                let found = split::nearest(&less, start).ok();
                // Not in the first round: layers that are split differently show what each way takes in context.
                let uniform = found.as_ref().and_then(|found| split::uniform_layers(&less, found));
                let new = [uniform, found].into_iter().flatten().filter(keeps_memory);
                let mut new = new.map(|found| MemoryReserve::restored(found, self.request));
                let found = new.find(|found| is_new(&trials, found));
                for found in found.into_iter().chain(variants.drain(..)) {
                    add_new(&mut next, &trials, found);
                }
            }
        }
        // Which plan needs the least memory follows from sizes, and which one the least energy from times that are
        // known of groups; only where times of runs decide do finalists take turns.
        let is_of_time = matches!(self.request.goal.objective, Objective::Latency | Objective::Throughput);
        if is_of_time && failure.is_none() {
            let before = trials.clone();
            trials = match self.compared(trials, &mut known, &mut reserve) {
                Err(PlanningError::Pilot(why)) if why.is_of_agent() && !before.is_empty() => {
                    failure = Some(why);
                    before
                }
                compared => compared?,
            };
        }
        if trials.is_empty() {
            return Err(PlanningError::NoRoom(reserve.last().unwrap_or_default().to_string()));
        }
        let Some(why) = failure else { return self.best(trials, &known) };
        (self.progress)(PlanEvent::AgentFailed(why.to_string()));
        trials.sort_by(|a, b| a.outcome.time().0.total_cmp(&b.outcome.time().0));
        let (mut candidate, known) = self.best(trials, &known)?;
        candidate.notes.push(format!("pilot runs ended early: {why}"));
        Ok((candidate, known))
    }

    /// `first` and its alternatives, and what it splits in other ratios. These variants differ little from it, so a plan at costs in
    /// context is run before them, if there is another round.
    fn first_candidates(&self, first: Candidate) -> (VecDeque<Candidate>, VecDeque<Candidate>) {
        let ratio_variants = match self.request.goal.objective {
            Objective::Memory | Objective::Energy => Vec::new(),
            Objective::Latency | Objective::Throughput => by_ratio_rules(self.request, self.options, &first),
        };
        let mut next = vec![first];
        if self.request.goal.is_free() {
            add_alternatives(self.request, self.options, &mut next);
        }
        let mut variants = VecDeque::new();
        for variant in ratio_variants {
            if next.iter().all(|candidate| !candidate.is_same(&variant)) {
                add_new(&mut variants, &[], variant);
            }
        }
        (next.into(), variants)
    }

    /// `trials` with candidates of other ratios, the finalists first, from the best to the worst.
    fn compared(
        &self,
        mut trials: Vec<Trial>,
        known: &mut InContextCosts,
        reserve: &mut MemoryReserve,
    ) -> Result<Vec<Trial>, PlanningError> {
        let request = known.applied_to(self.request);
        let others = fastest(&trials).map(|fastest| by_ratio_rules(&request, self.options, &fastest.candidate));
        for candidate in others.into_iter().flatten() {
            if is_new(&trials, &candidate) && !self.is_stopped() {
                trials.extend(self.trial(candidate, known, reserve)?);
            }
        }
        let nothing_before = trials.is_empty();
        trials = self.in_turns(trials, reserve)?;
        if trials.is_empty() && !nothing_before && self.request.goal.is_free() {
            trials.extend(self.with_memory_reserve(known, reserve)?);
        }
        Ok(trials)
    }

    /// Plans with the limits of `reserve`, which each refusal lowers, until a candidate runs. Without one there is nothing to
    /// return, so the time limit starts again. `None` if none runs within it and the maximum number of steps, or if no plan fits.
    fn with_memory_reserve(
        &self,
        known: &mut InContextCosts,
        reserve: &mut MemoryReserve,
    ) -> Result<Option<Trial>, PlanningError> {
        let stop = self.request.goal.search.stop.restarted();
        if self.request.goal.search.stop.is_over() && !reserve.is_empty() {
            (self.progress)(PlanEvent::LimitRestarted);
        }
        for step in 0..self.options.memory_steps {
            if reserve.is_empty() || (step > 0 && stop.is_requested()) {
                break;
            }
            let less = reserve.applied_to(self.request);
            let nearest = |stop: Stop| planner::nearest(&less.with_stop(stop)).ok().filter(keeps_memory);
            // Part of the time first: the candidate may be refused, too.
            let part = stop.earlier(self.options.search_share);
            let found = nearest(part).or_else(|| part.is_over().then(|| nearest(stop)).flatten());
            let Some(candidate) = found else { return Ok(None) };
            let trial = self.trial(MemoryReserve::restored(candidate, self.request), known, reserve)?;
            if trial.is_some() {
                return Ok(trial);
            }
        }
        Ok(None)
    }

    /// Runs the finalists interleaved, so that a temporary disturbance of the agents affects all of them. Returns them
    /// best first, each with the median of its runs, followed by the other trials. Once planning is stopped, the runs
    /// that there are decide. A candidate that an agent refuses is dropped: it might be refused later too.
    fn in_turns(&self, mut trials: Vec<Trial>, reserve: &mut MemoryReserve) -> Result<Vec<Trial>, PlanningError> {
        trials.sort_by(|a, b| a.outcome.time().0.total_cmp(&b.outcome.time().0));
        let times: Vec<f64> = trials.iter().map(|trial| trial.outcome.time().0).collect();
        let single: Vec<bool> = trials.iter().map(|trial| trial.candidate.uses_one_device()).collect();
        let PilotOptions { finalists: count, finalist_slowdown, turns, .. } = *self.options;
        let is_finalist = finalists(&times, &single, count, finalist_slowdown);
        let (mut compared, mut others): (Vec<(Trial, Vec<PilotOutcome>)>, Vec<Trial>) = Default::default();
        for (trial, is_finalist) in trials.into_iter().zip(is_finalist) {
            if is_finalist { compared.push((trial, Vec::new())) } else { others.push(trial) }
        }
        // A single finalist runs too: of its runs before only the fastest counted.
        let mut turns = turns;
        for turn in 0..turns {
            if self.is_stopped() {
                turns = turn;
                break;
            }
            // Without those that were refused in a turn before.
            for (trial, outcomes) in compared.iter_mut().filter(|(_, outcomes)| outcomes.len() == turn) {
                outcomes.extend(self.attempt(&trial.candidate, 1, reserve)?);
            }
        }
        if turns == 0 {
            // The runs before decide.
            compared.iter_mut().for_each(|(trial, outcomes)| outcomes.push(trial.outcome.clone()));
            turns = 1;
        }
        compared.retain(|(_, outcomes)| outcomes.len() == turns);
        let time = |outcome: &PilotOutcome| outcome.time().0;
        let times: Vec<Vec<f64>> = compared.iter().map(|(_, outcomes)| outcomes.iter().map(time).collect()).collect();
        let single: Vec<bool> = compared.iter().map(|(trial, _)| trial.candidate.uses_one_device()).collect();
        let scores = scores(&times, &single, self.options.second_device_gain);
        let mut ranked: Vec<(f64, Trial)> = Vec::new();
        for (score, (trial, mut outcomes)) in scores.into_iter().zip(compared) {
            outcomes.sort_by(|a, b| time(a).total_cmp(&time(b)));
            let outcome = outcomes.swap_remove(turns / 2);
            ranked.push((score, Trial { outcome, candidate: trial.candidate }));
        }
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(ranked.into_iter().map(|(_, trial)| trial).chain(others).collect())
    }

    /// Whether to give out the best plan so far.
    fn is_stopped(&self) -> bool {
        self.request.goal.search.stop.is_requested()
    }

    /// The first of `trials` that meets the targets at its measured times; where memory or energy is the objective, the one
    /// that needs the least, energy by the measured times.
    ///
    /// # Errors
    /// If none meets them; then with what the nearest one took.
    fn best(&self, trials: Vec<Trial>, known: &InContextCosts) -> Result<(Candidate, InContextCosts), PlanningError> {
        let mut judged: Vec<(Candidate, PilotOutcome, InContextCosts)> = Vec::new();
        for trial in trials {
            let known = self.fitted(&trial, self.after(&trial, known)?)?;
            let candidate = self.rejudged(&trial, &known)?.limited_to(&trial.candidate)?;
            judged.push((candidate, trial.outcome, known));
        }
        let value = |candidate: &Candidate| match self.request.goal.objective {
            Objective::Memory | Objective::Energy => candidate.solution.value(),
            Objective::Latency | Objective::Throughput => 0.0,
        };
        let rank = |(candidate, ..): &(Candidate, PilotOutcome, InContextCosts)| {
            (candidate.solution.violation(), value(candidate))
        };
        // The sort is stable: of those that meet the targets the first.
        judged.sort_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(Ordering::Equal));
        let Some((mut candidate, outcome, known)) = judged.into_iter().next() else {
            return Err(PlanningError::NoRoom(String::new()));
        };
        candidate = split::met(&known.applied_to(self.request), candidate).map_err(|why| match why {
            // What was measured in runs proves nothing of other plans.
            NoPlan::Targets { nearest, .. } => PlanningError::Missed(NoPlan::Targets {
                proven: false,
                shortages: nearest.as_ref().map(|nearest| nearest.shortages.clone()).unwrap_or_default(),
                nearest,
            }),
            why => PlanningError::NoPlan(why),
        })?;
        candidate.costs = CostSource::PilotRun;
        candidate.notes.push(outcome.note(candidate.is_scheduled()));
        candidate.notes.extend(outcome.outcome.engines.iter().map(ToString::to_string));
        Ok((candidate, known))
    }

    /// The candidate of a trial with its measured times.
    fn rejudged(&self, trial: &Trial, known: &InContextCosts) -> Result<Candidate, NoPlan> {
        let Trial { candidate, outcome } = trial;
        if !candidate.is_scheduled() {
            return split::reevaluate(&known.applied_to(self.request), candidate);
        }
        let times = outcome.outcome.groups.iter().map(|time| (GroupId(time.group), time.measured_us));
        let in_flight = outcome.outcome.interval_us.and(candidate.solution.in_flight);
        candidate.retimed(&times.collect(), outcome.time(), |evaluation| match in_flight {
            Some(count) => evaluation.loads.interval().max(Micros(evaluation.latency().0 / f64::from(count))),
            None => evaluation.latency(),
        })
    }

    /// Runs a candidate and learns from it. `None` if an agent has too little memory for it.
    fn trial(
        &self,
        candidate: Candidate,
        known: &mut InContextCosts,
        reserve: &mut MemoryReserve,
    ) -> Result<Option<Trial>, PlanningError> {
        let Some(outcome) = self.attempt(&candidate, self.options.max_attempts, reserve)? else { return Ok(None) };
        let trial = Trial { candidate, outcome };
        let exchanges = !trial.outcome.outcome.transfers.is_empty();
        let after = self.after(&trial, known)?.or_less(known);
        *known = if exchanges { after } else { after.with_contention_of(known) };
        Ok(Some(trial))
    }

    /// Runs a candidate, up to `attempts` times if it is slower than predicted; the fastest run counts. `None` if an
    /// agent has too little memory for it, which goes to `reserve`.
    fn attempt(
        &self,
        candidate: &Candidate,
        attempts: usize,
        reserve: &mut MemoryReserve,
    ) -> Result<Option<PilotOutcome>, PlanningError> {
        let plan = candidate.without_targets().to_plan(self.request)?;
        let mut fastest: Option<PilotOutcome> = None;
        for _ in 0..attempts {
            (self.progress)(PlanEvent::Running);
            let outcome = match self.agents.run(candidate, &plan, self.options) {
                Ok(outcome) => outcome,
                Err(error) => {
                    let PilotError::Perform(PerformError::Run(run)) = &error else { return Err(error.into()) };
                    let Some((agent, message, shortfall)) = run.memory() else { return Err(error.into()) };
                    reserve.refused(&plan.devices, agent, shortfall, message);
                    let (agent, message) = (agent.to_string(), message.to_string());
                    (self.progress)(PlanEvent::PilotRefused { agent, message });
                    return Ok(None);
                }
            };
            if fastest.as_ref().is_none_or(|before| outcome.time() < before.time()) {
                fastest = Some(outcome);
            }
            let limit = self.options.surprise;
            if fastest.as_ref().is_some_and(|fastest| fastest.time().0 <= limit * fastest.predicted(&plan).0) {
                break;
            }
        }
        let Some(outcome) = fastest else { return Ok(None) };
        (self.progress)(PlanEvent::PilotRun {
            devices: plan.used_devices().count(),
            splits: plan.splits.len(),
            is_scheduled: candidate.is_scheduled(),
            is_stream: outcome.outcome.interval_us.is_some(),
            time: outcome.time(),
            predicted: outcome.predicted(&plan),
        });
        Ok(Some(outcome))
    }

    /// What is known after a trial, which counts more than all before it.
    fn after(&self, trial: &Trial, known: &InContextCosts) -> Result<InContextCosts, PlanningError> {
        let Trial { candidate, outcome } = trial;
        if candidate.is_scheduled() {
            return Ok(known.clone());
        }
        let problem = |error: &dyn std::fmt::Display| ProblemError { what: error.to_string() };
        let isolated = self.request.expand(&candidate.applied).map_err(|e| problem(&e))?;
        let mut after = known.clone().after(&isolated, &candidate.without_targets().to_plan(self.request)?, outcome);
        let evaluated = |known: &InContextCosts| self.evaluated(candidate, known);
        let Some(interval) = outcome.outcome.interval_us else {
            let exchanges = evaluated(&after)?.critical_transfers();
            after.fit_exchange_overhead(outcome.time(), exchanges, |known| {
                Ok::<_, PlanningError>(evaluated(known)?.latency())
            })?;
            return Ok(after);
        };
        for _ in 0..self.options.contention_steps {
            let evaluation = evaluated(&after)?;
            let busiest = evaluation.loads.devices.iter().copied().fold(Micros::ZERO, Micros::max);
            let count = f64::from(candidate.solution.in_flight.unwrap_or(1));
            let predicted = busiest.max(Micros(evaluation.latency().0 / count));
            // Where a link takes the longest, the difference is not that of computations.
            if predicted >= evaluation.loads.interval() {
                after.fit_contention(interval, predicted);
            }
        }
        Ok(after)
    }

    /// `known` with computations scaled so that the latency of the trial's plan is the median that was measured: neither
    /// the start of a run nor the difference between medians of sums and sums of medians is that of a single group.
    fn fitted(&self, trial: &Trial, mut known: InContextCosts) -> Result<InContextCosts, PlanningError> {
        let Trial { candidate, outcome } = trial;
        if candidate.is_scheduled() || outcome.outcome.interval_us.is_some() {
            return Ok(known);
        }
        for _ in 0..self.options.contention_steps {
            let predicted = self.evaluated(candidate, &known)?.latency();
            known.fit_contention(outcome.time(), predicted);
        }
        Ok(known)
    }

    /// The evaluation of a candidate at the costs that are `known`.
    fn evaluated(&self, candidate: &Candidate, known: &InContextCosts) -> Result<Evaluation, PlanningError> {
        let problem = |error: &dyn std::fmt::Display| ProblemError { what: error.to_string() };
        let expanded = known.applied_to(self.request).expand(&candidate.applied).map_err(|e| problem(&e))?;
        let placement = candidate.solution.evaluation.placement.clone();
        Ok(Evaluation::of(&expanded.problem, placement).map_err(|e| problem(&e))?)
    }
}

fn fastest(trials: &[Trial]) -> Option<&Trial> {
    trials.iter().min_by(|a, b| a.outcome.time().0.total_cmp(&b.outcome.time().0))
}

/// Adds `candidate` to the `next` to run, unless it is among them or was run.
fn add_new(next: &mut VecDeque<Candidate>, trials: &[Trial], candidate: Candidate) {
    if is_new(trials, &candidate) && next.iter().all(|other| !other.is_same(&candidate)) {
        next.push_back(candidate);
    }
}

fn is_new(trials: &[Trial], candidate: &Candidate) -> bool {
    trials.iter().all(|trial| !trial.candidate.is_same(candidate))
}
