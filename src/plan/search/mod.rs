//! The searches for a good placement: one algorithm a file, all working on one [`Session`].
//!
//! | module | what it finds |
//! |---|---|
//! | [`single`] | everything on one device, and each group where it is fastest |
//! | [`beam`] | list scheduling with look-ahead, several partial schedules at a time; exact on chains |
//! | [`pipeline`] | contiguous stretches of program order with equal loads, for throughput |
//! | [`exact`] | the best of all whole placements and orders, on small problems |
//! | `integer` | the optimum of a mixed-integer program, or a bound by it (feature `exact`) |
//! | [`quick`] | no placement, but the score of one, many times a second |
//! | [`replay`] | no placement, but the times of one that changes move by move |
//! | [`anneal`] | better neighbours of the best placement so far |
//!
//! Work is counted in evaluations of whole placements, so that the same problem, seed and budget give the same
//! plan; the deadline only cuts off.

pub mod anneal;
pub mod beam;
pub mod exact;
#[cfg(feature = "exact")]
pub mod integer;
pub mod order;
pub mod pipeline;
pub mod quick;
pub mod replay;
pub mod single;

use std::{rc::Rc, time::Duration};

use self::quick::Quick;
use super::{
    DeviceId, GroupId, Problem,
    bound::{Bounded, critical::Tails},
    evaluate::Score,
    pace::Pace,
    work::PlacementError,
};

/// How hard to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    pub seed: u64,
    /// Placements that may be evaluated; as many as suit the size of the problem if not given.
    pub budget: Option<u64>,
    /// When to stop although budget is left; results then depend on the machine's speed.
    pub cut_off: Option<Duration>,
}

impl Default for Options {
    fn default() -> Options {
        Options { seed: 0, budget: None, cut_off: Some(Duration::from_secs(20)) }
    }
}

/// Placements that are evaluated if nothing else is asked for: at most so many, and so many groups in all of them.
const BUDGET: u64 = 20_000;
const GROUPS: u64 = 40_000_000;

/// Share of the evaluations, and of the time, that the search for an order of least memory may take.
const FOR_THRIFT: u64 = 8;

impl Options {
    /// How many placements of a problem of so many groups may be evaluated.
    pub fn evaluations(&self, groups: usize) -> u64 {
        self.budget.unwrap_or(BUDGET.min(GROUPS / (1 + groups as u64)))
    }

    /// One of so many parts of the evaluations of a problem of so many groups, and of the time.
    pub fn part(&self, parts: u32, groups: usize) -> Options {
        let cut_off = self.cut_off.map(|limit| limit / parts);
        Options { budget: Some(self.evaluations(groups) / u64::from(parts)), cut_off, ..*self }
    }
}

/// Each group whole on one device, and a topological order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    pub devices: Vec<DeviceId>,
    pub order: Vec<GroupId>,
}

/// One search for one problem: what is spent, and the best so far.
pub struct Session<'a> {
    pub problem: &'a Problem,
    pub options: Options,
    pub best: Option<(Score, Whole)>,
    /// The bound on the objective: a feasible placement that reaches it ends the search.
    pub bound: Bounded<f64>,
    /// Whether some algorithm has seen every placement or proved the rest worse.
    pub proven: bool,
    /// Whether nothing is left to be found but what rounding hides.
    pub settled: bool,
    pub tails: Rc<Tails>,
    /// Topological orders to place the groups in: that of the program, by urgency, and where memory counts by thrift.
    pub orders: Rc<[Vec<GroupId>]>,
    /// Placements that may be evaluated.
    budget: u64,
    spent: u64,
    pace: Pace,
    quick: Quick<'a>,
}

impl<'a> Session<'a> {
    pub fn new(problem: &'a Problem, bound: Bounded<f64>, options: Options) -> Session<'a> {
        let pace = Pace::new(options.cut_off);
        let tails = Rc::new(Tails::of(problem));
        let quick = Quick::new(problem);
        let budget = options.evaluations(problem.groups.len());
        let mut orders = vec![problem.group_ids().collect(), order::by_urgency(problem, &tails)];
        let width = (budget / FOR_THRIFT / order::EVALUATIONS_A_SET).min(order::WIDTH);
        let mut spent = 0;
        let late = || pace.used() * FOR_THRIFT as f64 > 1.0;
        if quick.needs_account()
            && width > 0
            && let Some(order) = order::by_thrift(problem, width as usize, &late)
        {
            orders.push(order);
            spent = width * order::EVALUATIONS_A_SET;
        }
        Session {
            problem,
            options,
            best: None,
            bound,
            proven: false,
            settled: false,
            tails,
            orders: orders.into(),
            budget,
            spent,
            pace,
            quick,
        }
    }

    /// Runs every algorithm that suits the problem.
    pub fn run(&mut self) {
        single::search(self);
        beam::search(self);
        pipeline::search(self);
        exact::search(self);
        #[cfg(feature = "exact")]
        integer::search(self);
        anneal::search(self);
    }

    /// Scores a placement and keeps it if it is the best so far.
    ///
    /// # Errors
    /// If the placement is impossible.
    pub fn offer(&mut self, whole: &Whole) -> Result<Score, PlacementError> {
        self.spent += 1;
        let score = self.quick.score(&whole.devices, &whole.order)?;
        if self.best.as_ref().is_none_or(|(best, _)| score.better(best)) {
            self.best = Some((score, whole.clone()));
        }
        Ok(score)
    }

    /// Counts evaluations of placements that differ from one before by a move, and what takes as long as they do.
    pub fn spend(&mut self, evaluations: u64) {
        self.spent += evaluations;
    }

    /// Takes in a bound on the objective, if it is stronger than what is known.
    pub fn prove(&mut self, value: f64, by: &'static str) {
        if value > self.bound.value {
            self.bound = Bounded { value, by };
        }
    }

    pub fn pace(&self) -> Pace {
        self.pace
    }

    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Evaluations that are left.
    pub fn left(&self) -> u64 {
        self.budget.saturating_sub(self.spent)
    }

    /// Whether memory may decide anything.
    pub fn needs_account(&self) -> bool {
        self.quick.needs_account()
    }

    /// The score by times alone; `None` where memory may decide.
    pub fn judge(&self, makespan: f64, interval: f64) -> Option<Score> {
        (!self.quick.needs_account()).then(|| self.quick.judge(makespan, interval))
    }

    /// Whether to stop: nothing is left to spend, or nothing better can be found.
    pub fn is_over(&self) -> bool {
        self.proven
            || self.settled
            || self.spent >= self.budget
            || self.pace.is_late()
            || self.best.as_ref().is_some_and(|(best, _)| best.feasible() && best.value <= self.bound.value)
    }
}
