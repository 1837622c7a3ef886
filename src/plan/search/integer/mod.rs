//! A mixed-integer program of the problem, solved exactly where it is small (feature `exact`).
//!
//! What the program leaves out only helps ([`Model`]), so its optimum, or what is proved of it when the search is cut
//! off, is a bound. The placements that it finds are judged by the simulator like all others; where one is worth what
//! the program says, it is the best there is. With too many choices for a search the program is solved with fractions
//! of groups, which still gives a bound, often a better one than those of [`bound`](crate::plan::bound): paths, loads
//! and transfers count together there.

mod model;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use microlp::{SolveOptions, SolveOutcome};

use self::model::{Detail, Model, Size};
use super::{Session, Whole};
use crate::plan::problem::Objective;

/// Choices of 0 and 1 up to which groups are whole, and columns up to which there is a program at all.
const MOST_CHOICES: usize = 400;
const MOST_COLUMNS: usize = 6_000;
/// Groups up to which the program decides which comes first on a device.
const MOST_ORDERED: usize = 15;
/// Share of the evaluations and of the time; a relaxation of the program counts as an evaluation.
const SHARE: u64 = 4;
/// The solver's figures are rounded: its optimum is trusted up to this part.
const ROUNDING: f64 = 1e-7;
/// A solver that runs in circles is stopped although there is no time to stop.
const ENDLESS: Duration = Duration::from_secs(120);

pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.groups.is_empty() || session.is_over() {
        return;
    }
    let best = session.best.as_ref().filter(|(score, _)| score.feasible());
    let upper = best.map_or(f64::INFINITY, |(score, _)| score.value);
    let size = Size::of(problem);
    if size.columns > MOST_COLUMNS {
        return;
    }
    let orders = problem.objective == Objective::Latency && upper.is_finite();
    let (detail, by) = match (size.choices <= MOST_CHOICES, problem.groups.len() <= MOST_ORDERED) {
        (false, _) => (Detail::Fractions, "a linear program of paths, loads and memories"),
        (true, few) if few && orders => (Detail::Ordered, "a mixed-integer program of placements and orders"),
        (true, _) => (Detail::Whole, "a mixed-integer program of placements"),
    };
    let Some(model) = Model::new(problem, detail, session.bound.value, upper) else { return };
    let mut options = SolveOptions::default();
    options.node_limit = Some(session.left() / SHARE);
    options.time_limit = Some(session.pace().left(1.0 / SHARE as f64).unwrap_or(ENDLESS));
    options.warm_start = best.map(|(_, whole)| model.hint(whole));
    // A solver that gives up, even by a panic, leaves the problem to the other searches.
    let Ok(Ok(outcome)) = catch_unwind(AssertUnwindSafe(|| model.program.solve_with(options))) else { return };
    let stats = outcome.stats();
    session.spend(stats.nodes_solved);
    offer(session, &model, &outcome);
    if let Some(bound) = stats.best_bound.filter(|bound| bound.is_finite()) {
        let bound = bound * model.unit * (1.0 - ROUNDING);
        // Bytes are whole.
        session.prove(if problem.objective == Objective::Memory { bound.ceil() } else { bound }, by);
    }
    let nearest = session.bound.value * (1.0 + 4.0 * ROUNDING);
    session.settled |= session.best.as_ref().is_some_and(|(best, _)| best.feasible() && best.value <= nearest);
}

/// Offers what the solver found, in its order and in those that there are.
fn offer(session: &mut Session<'_>, model: &Model, outcome: &SolveOutcome) {
    let Some(solution) = outcome.solution() else { return };
    let value = |variable| solution.var_value_raw(variable);
    let devices = model.devices(value);
    let orders = session.orders.clone();
    for order in orders.iter().chain(&model.order(session.problem, &devices, value)) {
        let _impossible_is_skipped = session.offer(&Whole { devices: devices.clone(), order: order.clone() });
    }
}
