//! A plan while it is being chosen: between the request and the plan file.
//!
//! Uses `problem`, `judge`, `plan_file`, `check` and `request`.
//!
//! | module | |
//! |---|---|
//! | [`attempt`], `strategy` | ways to find a candidate, tried in order, and the account of what each found |
//! | `estimates` | which times of a plan were not measured |
//! | `identity` | which group and which tensor of the model the rows of a plan are, or are parts of |

pub mod attempt;
mod estimates;
mod identity;
pub(crate) mod strategy;

use std::collections::{BTreeMap, BTreeSet};

use edgecut_graph::units::Micros;

use self::attempt::Attempt;
use crate::{
    check::{self, Violation},
    judge::{
        bound::LowerBound,
        evaluation::Evaluation,
        no_plan::NoPlan,
        rank::Rank,
        solution::{Solution, evaluate},
    },
    plan_file::{
        file::{Plan, Split},
        schedule::Schedule,
    },
    problem::{Device, GroupId, Handling, Objective, Problem, ProblemError, Targets, group_names::GroupNames},
    request::{PlanRequest, choice::Choices, expand::Expanded},
};

/// A solution with its graph and everything else that the plan file contains.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub solution: Solution,
    /// The graph and the problem of the solution, with splits and schedules expanded.
    pub expanded: Expanded,
    pub splits: Vec<Split>,
    /// Memory-saving schedules by which devices keep their limits; empty if they keep them without.
    pub schedules: Vec<Schedule>,
    /// The split choices by group; a search with other shard costs may start from them.
    pub choices: Choices,
    /// The same choices with the ratios of the request's rule, from which [`Candidate::expanded`] is built.
    pub applied: Choices,
    /// The value of the best plan without splits, if there is one.
    pub whole: Option<f64>,
    pub costs: CostSource,
    /// How it was found: the strategies in the order in which they were tried.
    pub attempts: Vec<Attempt>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Where the times of a candidate come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CostSource {
    /// Profiles, and estimates from them.
    #[default]
    Profile,
    /// A run of the candidate itself.
    PilotRun,
}

impl Candidate {
    /// A candidate in which nothing is split.
    pub(crate) fn whole(solution: Solution, expanded: Expanded) -> Candidate {
        let whole = Some(solution.value());
        Candidate { whole, ..Candidate::split(solution, expanded, Vec::new(), Choices::new(), Choices::new()) }
    }

    /// A candidate with `splits`.
    pub(crate) fn split(
        solution: Solution,
        expanded: Expanded,
        splits: Vec<Split>,
        choices: Choices,
        applied: Choices,
    ) -> Candidate {
        Candidate {
            solution,
            expanded,
            splits,
            schedules: Vec::new(),
            choices,
            applied,
            whole: None,
            costs: CostSource::Profile,
            attempts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Of two candidates for `objective` the better one misses limits and targets by less ([`Solution::distance`]), or by
    /// as much at a better value.
    pub fn rank(&self, objective: Objective) -> Rank {
        Rank::new(self.solution.distance(), self.value(objective))
    }

    /// What it is worth by `objective`, the smaller the better.
    pub fn value(&self, objective: Objective) -> f64 {
        let evaluation = &self.solution.evaluation;
        match objective {
            Objective::Latency => evaluation.latency().0,
            Objective::Throughput => self.solution.interval().0,
            Objective::Memory => evaluation.peak().0 as f64,
            Objective::Energy => evaluation.energy.0,
        }
    }

    /// Placements that all strategies together evaluated.
    pub(crate) fn evaluations(&self) -> u64 {
        self.attempts.iter().map(|attempt| attempt.evaluations).sum()
    }

    /// Whether some device follows a schedule that needs less memory. The request has no costs of its steps.
    pub fn is_scheduled(&self) -> bool {
        !self.schedules.is_empty()
    }

    /// Whether all groups run on one device.
    pub fn uses_one_device(&self) -> bool {
        let devices = &self.solution.evaluation.placement.devices;
        devices.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Whether both have the same placement and splits; candidates with schedules are never equal.
    pub fn is_same(&self, other: &Candidate) -> bool {
        let placement = |candidate: &Candidate| candidate.solution.evaluation.placement.clone();
        let is_scheduled = self.is_scheduled() || other.is_scheduled();
        !is_scheduled && self.splits == other.splits && placement(self) == placement(other)
    }

    /// The same without targets on times: for a plan that is run to find out what it takes.
    pub fn without_targets(&self) -> Candidate {
        let mut candidate = self.clone();
        candidate.expanded.problem.targets = Targets::default();
        candidate
    }

    /// The candidate with at most as many inputs in flight as `run`.
    ///
    /// # Errors
    /// If what is held does not fit in 63 bits.
    pub fn limited_to(mut self, run: &Candidate) -> Result<Candidate, ProblemError> {
        if let Some(most) = run.solution.in_flight {
            self.solution.at_most(most, &self.expanded.problem)?;
        }
        Ok(self)
    }

    /// The candidate with other `times` of its groups. All times, including those of links, are then scaled so that
    /// `predict` returns `measured`, since the difference cannot be attributed to a single group. If the candidate is
    /// faster than before, its bound decreases by the same factor: other plans would be faster too.
    ///
    /// # Errors
    /// If the times are invalid.
    pub fn retimed(
        &self,
        times: &BTreeMap<GroupId, Micros>,
        measured: Micros,
        predict: impl Fn(&Evaluation) -> Micros,
    ) -> Result<Candidate, NoPlan> {
        let (before, expanded) = (&self.solution, &self.expanded);
        let placement = || before.evaluation.placement.clone();
        let first = timed(&expanded.problem, times, 1.0);
        let now = predict(&Evaluation::of(&first, placement()).map_err(|e| ProblemError { what: e.to_string() })?);
        let factor = if now > Micros::ZERO { measured.0 / now.0 } else { 1.0 };
        let problem = timed(&expanded.problem, times, factor);
        let mut solution = evaluate(&problem, placement())?;
        let faster = if before.value() > 0.0 { (solution.value() / before.value()).min(1.0) } else { 1.0 };
        solution.bound = LowerBound { value: before.bound.value * faster, by: before.bound.by };
        solution.evaluations = before.evaluations;
        Ok(Candidate { solution, expanded: Expanded { problem, ..expanded.clone() }, ..self.clone() })
    }

    /// The plan, checked; `request` has the costs with which the candidate was evaluated.
    ///
    /// # Errors
    /// If the plan does not pass the independent checker.
    pub fn to_plan(&self, request: &PlanRequest<'_>) -> Result<Plan, Violation> {
        let PlanRequest { instance, goal } = request;
        let problem = &self.expanded.problem;
        let (model, seed) = (instance.model.clone(), goal.search.seed);
        let mut plan = Plan::new(problem, &self.solution, model, instance.granularity, seed);
        plan.splits.clone_from(&self.splits);
        plan.states.clone_from(&self.expanded.states);
        plan.cluster.clone_from(&instance.cluster);
        check::plan(problem, &plan)?;
        plan.rules.clone_from(&instance.rules);
        plan.schedules.clone_from(&self.schedules);
        plan.notes.extend(self.schedules.iter().map(|schedule| note(schedule, &instance.network.devices)));
        // A pilot run of a candidate with schedules measures all its groups.
        if self.costs == CostSource::Profile || !self.is_scheduled() {
            estimates::mark(&mut plan, &self.expanded, instance);
        }
        plan.notes.extend(self.notes.iter().cloned());
        let groups = instance.group_names();
        identity::mark(&mut plan, &self.expanded.within, &groups, instance.split_options.graph);
        let names =
            |of: &Option<usize>| of.and_then(|group| groups.get(group)).map(GroupNames::all).unwrap_or_default();
        check::rules(&plan, &self.expanded.within.iter().map(names).collect::<Vec<_>>())?;
        Ok(plan)
    }
}

/// `problem` with `times` of its groups on all devices; then all times, including those of links, times `factor`.
fn timed(problem: &Problem, times: &BTreeMap<GroupId, Micros>, factor: f64) -> Problem {
    let mut timed = problem.clone();
    // Times of runs have in them what transfers take of devices.
    timed.devices.iter_mut().for_each(|device| device.handling = Handling::default());
    for (id, group) in (0u32..).map(GroupId).zip(&mut timed.groups) {
        for cost in group.costs.iter_mut().flatten() {
            cost.time = Micros(factor * times.get(&id).unwrap_or(&cost.time).0);
        }
    }
    for link in &mut timed.links {
        *link = link.clone().slower(factor);
    }
    timed
}

/// One-line description of a schedule.
fn note(schedule: &Schedule, devices: &[Device]) -> String {
    let device =
        devices.get(schedule.device.0 as usize).map_or(String::new(), |device| device.device_name().to_string());
    let distinct: BTreeSet<_> = schedule.steps.iter().collect();
    let again = schedule.steps.len() - distinct.len();
    let parts: u64 = schedule.segments.iter().map(|segment| segment.tiles).sum();
    let (steps, segments) = (schedule.steps.len(), schedule.segments.len());
    format!(
        "{device} computes {steps} steps in an order of their own to need less memory: {segments} segments in {parts} \
             parts, {again} steps again"
    )
}
