//! One search for one problem: the incumbent, the lower bound and the remaining budget.

use std::rc::Rc;

use super::{deadline::Deadline, fast_evaluator::FastEvaluator, options::Options, order};
use crate::{
    judge::{
        bound::{LowerBound, critical_path::Tails, energy::EnergyTails},
        evaluation::Score,
    },
    problem::{
        GroupId, Problem,
        placement::{Placement, PlacementError},
    },
};

use edgecut_graph::units::Joules;

/// The part (one over it) of the evaluations, and of the time, for the search for a minimum-memory order.
const MIN_MEMORY_ORDER_PART: u64 = 8;

/// The state that all algorithms share.
pub struct Session<'a> {
    pub problem: &'a Problem,
    pub options: Options,
    /// The incumbent.
    pub best: Option<(Score, Placement)>,
    /// Lower bound on the objective: a feasible placement that reaches it ends the search.
    pub bound: LowerBound<f64>,
    /// Whether the incumbent is proved optimal, or the problem infeasible.
    pub proven: bool,
    /// Whether the incumbent is optimal up to rounding.
    pub settled: bool,
    pub tails: Rc<Tails>,
    /// Where energy is the objective.
    pub energy_tails: Option<Rc<EnergyTails>>,
    /// Topological orders to place the groups in: program order, upward rank, and minimum memory where memory counts.
    pub orders: Rc<[Vec<GroupId>]>,
    /// Placements that may be evaluated.
    budget: u64,
    spent: u64,
    deadline: Deadline,
    evaluator: FastEvaluator<'a>,
}

impl<'a> Session<'a> {
    pub fn new(problem: &'a Problem, bound: LowerBound<f64>, options: Options) -> Session<'a> {
        let deadline = Deadline::or_stop(options.cut_off, options.stop);
        let tails = Rc::new(Tails::of(problem));
        let evaluator = FastEvaluator::new(problem);
        let budget = options.evaluations(problem.groups.len());
        let mut orders = vec![problem.group_ids().collect(), order::upward_rank_order(problem, &tails)];
        let width = (budget / MIN_MEMORY_ORDER_PART / order::EVALUATIONS_PER_SET).min(order::MAX_WIDTH);
        let mut spent = 0;
        let late = || deadline.elapsed() * MIN_MEMORY_ORDER_PART as f64 > 1.0;
        if evaluator.depends_on_memory()
            && width > 0
            && let Some(order) = order::min_memory_order(problem, width as usize, &late)
        {
            orders.push(order);
            spent = width * order::EVALUATIONS_PER_SET;
        }
        Session {
            problem,
            options,
            best: None,
            bound,
            proven: false,
            settled: false,
            tails,
            energy_tails: EnergyTails::for_objective(problem).map(Rc::new),
            orders: orders.into(),
            budget,
            spent,
            deadline,
            evaluator,
        }
    }

    /// Scores a placement; a better one than the incumbent replaces it.
    ///
    /// # Errors
    /// If the placement is impossible.
    pub fn offer(&mut self, placement: &Placement) -> Result<Score, PlacementError> {
        self.spent += 1;
        let score = self.evaluator.score(&placement.devices, &placement.order)?;
        if self.improves(&score) {
            self.best = Some((score, placement.clone()));
        }
        Ok(score)
    }

    /// Whether a score is better than that of the incumbent.
    pub(crate) fn improves(&self, score: &Score) -> bool {
        self.best.as_ref().is_none_or(|(best, _)| score.better(best))
    }

    /// Counts work that takes as long as `evaluations` evaluations.
    pub fn spend(&mut self, evaluations: u64) {
        self.spent += evaluations;
    }

    /// Takes a lower bound on the objective, if it is stronger than the known one.
    #[cfg(feature = "exact")]
    pub(crate) fn prove(&mut self, value: f64, by: &'static str) {
        if value > self.bound.value {
            self.bound = LowerBound { value, by };
        }
    }

    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Evaluations that are left.
    pub fn left(&self) -> u64 {
        self.budget.saturating_sub(self.spent)
    }

    /// Whether the score may depend on memory.
    pub(crate) fn depends_on_memory(&self) -> bool {
        self.evaluator.depends_on_memory()
    }

    /// The score by times, and by the energy of all tasks above idle; `None` where it may depend on memory.
    pub fn score_times(&self, makespan: f64, interval: f64, above_idle: Joules) -> Option<Score> {
        (!self.evaluator.depends_on_memory()).then(|| self.evaluator.score_times(makespan, interval, above_idle))
    }

    /// Whether to stop: the budget or the time is spent, or nothing better can be found.
    pub fn is_over(&self) -> bool {
        self.proven
            || self.settled
            || self.spent >= self.budget
            || self.deadline.has_passed()
            || self.best.as_ref().is_some_and(|(best, _)| best.feasible() && best.value <= self.bound.value)
    }
}
