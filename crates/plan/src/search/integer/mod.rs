//! Mixed-integer programming (feature `exact`): the optimum of small problems, or a lower bound.
//!
//! The program is a relaxation ([`Model`]), so its optimum, or the bound proved when the solver is stopped, is a lower bound.
//! The simulator scores the placements that it finds; one with the value of the program is optimal. With too many choices
//! the linear relaxation is solved, which still gives a bound, often a better one than those of [`bound`](crate::judge::bound):
//! paths, loads and transfers count together.
//!
//! | module | part of the program |
//! |---|---|
//! | `model` | the whole program, and what its variables mean |
//! | `builder` | variables, and the device of each group |
//! | `times` | starts, finish, loads |
//! | `memories` | memory of each device |
//! | `precedence` | the order of groups on a device |

mod builder;
mod memories;
mod model;
mod precedence;
mod times;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use microlp::{SolveOptions, SolveOutcome};

use edgecut_graph::units::Watts;

use self::{
    builder::Detail,
    model::{Model, Size},
};
use super::session::Session;
use crate::problem::{Objective, placement::Placement};

/// Limit on the binary choices of a mixed-integer program, and on the columns of any program.
const MAX_CHOICES: usize = 400;
const MAX_COLUMNS: usize = 6_000;
/// Limit on the groups of a program that decides orders.
const MAX_ORDERED: usize = 15;
/// The part (one over it) of the evaluations and of the time; a solved relaxation counts as an evaluation.
const PART: u64 = 4;
/// Relative tolerance of the solver's results.
const ROUNDING: f64 = 1e-7;
/// Time limit of the solver for searches without one, in case it cycles.
const MAX_TIME: Duration = Duration::from_secs(120);

/// Solves the program, if it is small enough, and takes its bound and its placements.
pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.groups.is_empty() || session.is_over() {
        return;
    }
    let best = session.best.as_ref().filter(|(score, _)| score.feasible());
    let upper = best.map_or(f64::INFINITY, |(score, _)| score.value);
    let size = Size::of(problem);
    if size.columns > MAX_COLUMNS {
        return;
    }
    let counts_latency = match problem.objective {
        Objective::Latency => true,
        Objective::Energy => problem.idle_power() > Watts::ZERO,
        Objective::Throughput | Objective::Memory => false,
    };
    let orders = counts_latency && upper.is_finite();
    let (detail, by) = match (size.choices <= MAX_CHOICES, problem.groups.len() <= MAX_ORDERED) {
        (false, _) => (Detail::Fractions, "a linear program of paths, loads and memories"),
        (true, few) if few && orders => (Detail::Ordered, "a mixed-integer program of placements and orders"),
        (true, _) => (Detail::Whole, "a mixed-integer program of placements"),
    };
    let Some(model) = Model::new(problem, detail, session.bound.value, upper) else { return };
    let mut options = SolveOptions::default();
    options.node_limit = Some(session.left() / PART);
    options.time_limit = Some(session.deadline().remaining(1.0 / PART as f64).unwrap_or(MAX_TIME));
    options.warm_start = best.map(|(_, placement)| model.warm_start(placement));
    // If the solver fails, even by a panic, the other searches continue.
    let Ok(Ok(outcome)) = catch_unwind(AssertUnwindSafe(|| model.program.solve_with(options))) else { return };
    let stats = outcome.stats();
    session.spend(stats.nodes_solved);
    offer(session, &model, &outcome);
    if let Some(bound) = stats.best_bound.filter(|bound| bound.is_finite()) {
        let bound = bound * model.unit * (1.0 - ROUNDING);
        // Bytes are whole.
        session.prove(if problem.objective == Objective::Memory { bound.ceil() } else { bound }, by);
    }
    let reachable = session.bound.value * (1.0 + 4.0 * ROUNDING);
    session.settled |= session.best.as_ref().is_some_and(|(best, _)| best.feasible() && best.value <= reachable);
}

/// Offers the placement of the solver, in its order and in those of the session.
fn offer(session: &mut Session<'_>, model: &Model, outcome: &SolveOutcome) {
    let Some(solution) = outcome.solution() else { return };
    let value = |variable| solution.var_value_raw(variable);
    let devices = model.devices(value);
    let orders = session.orders.clone();
    for order in orders.iter().chain(&model.order(session.problem, &devices, value)) {
        let _impossible_is_skipped = session.offer(&Placement { devices: devices.clone(), order: order.clone() });
    }
}
