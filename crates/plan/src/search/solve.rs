//! From a problem to a solution: bounds, searches, and where no placement meets the targets, the nearest one.

use super::{deadline::Deadline, options::Options, session::Session};
use crate::{
    judge::{
        bound::{Bounds, LowerBound},
        evaluation::Evaluation,
        no_plan::NoPlan,
        pipeline_depth,
        proof::{proof, unsupported},
        solution::{Solution, arenas, overfull},
    },
    problem::{Problem, ProblemError, placement::Placement},
};

/// How often limits are tightened by what packing adds to the load before that is given up.
const REPACKINGS: usize = 6;
/// Share of all evaluations, and of the time, that each of these may take at least.
const FOR_REPACKING: u64 = 4;

/// Finds a placement for `problem`.
///
/// # Errors
/// If the tables contradict each other, or no placement meets limits and targets; then with the reason.
pub fn solve(problem: &Problem, options: &Options) -> Result<Solution, NoPlan> {
    problem.check()?;
    let proof = proof(problem, &Bounds::of(problem));
    match proof.is_empty() {
        true => nearest(problem, options)?.met(),
        false => Err(NoPlan::proved(proof)),
    }
}

/// The same; where no placement that meets limits and targets is found, the nearest one, which says what it misses.
///
/// # Errors
/// If the tables contradict each other, or some group runs nowhere.
pub fn nearest(problem: &Problem, options: &Options) -> Result<Solution, NoPlan> {
    problem.check()?;
    let nowhere = unsupported(problem);
    if !nowhere.is_empty() {
        return Err(NoPlan::proved(nowhere));
    }
    let deadline = Deadline::or_stop(options.cut_off, options.stop);
    let bounds = Bounds::of(problem);
    let is_stream = pipeline_depth::is_stream(problem.objective, &problem.targets);
    let found = search(problem, options, &bounds, &deadline, is_stream)?;
    if found.missed.is_empty() || !is_stream {
        return Ok(found);
    }
    // Limits may leave room for fewer inputs at a time than the devices could keep busy.
    let mut fewer = search(problem, options, &bounds, &deadline, false)?;
    fewer.stream(problem)?;
    Ok(if fewer.violation() < found.violation() { fewer } else { found })
}

/// The same with the memory of all inputs in flight, or of a single one.
fn search(
    problem: &Problem,
    options: &Options,
    bounds: &Bounds,
    deadline: &Deadline,
    is_stream: bool,
) -> Result<Solution, NoPlan> {
    let mut bound = bounds.on(problem.objective);
    let mut tight = problem.clone();
    let budget = options.evaluations(problem.groups.len());
    let mut evaluations = 0;
    let mut nearest: Option<Solution> = None;
    for _ in 0..REPACKINGS {
        let left = budget.saturating_sub(evaluations).max(budget / FOR_REPACKING);
        let time = (1.0 - deadline.elapsed()).max(1.0 / FOR_REPACKING as f64);
        let cut_off = options.cut_off.map(|limit| limit.mul_f64(time));
        let mut session = Session::new(&tight, bound.clone(), Options { budget: Some(left), cut_off, ..*options });
        crate::search::run(&mut session);
        evaluations += session.spent();
        let untightened = tight.devices == problem.devices;
        if untightened {
            bound = session.bound.clone();
        }
        let Some((score, whole)) = session.best.take() else { break };
        let placement = Placement::new(&whole.devices, &whole.order);
        let evaluation = Evaluation::of(problem, placement).map_err(|e| ProblemError { what: e.to_string() })?;
        let in_flight = is_stream.then(|| pipeline_depth::desired(&evaluation));
        let arenas = pipeline_depth::reserved_memory(
            &arenas(&evaluation.memory)?,
            &pipeline_depth::waiting_memory(problem, &evaluation),
            in_flight.unwrap_or(1),
        );
        let over = overfull(problem, &evaluation, &arenas);
        if session.proven && score.feasible() && over.is_empty() && untightened && evaluation.score.value > bound.value
        {
            bound = LowerBound { value: evaluation.score.value, by: "complete search" };
        }
        // Bounds of a solver are rounded.
        bound.value = bound.value.min(evaluation.score.value);
        let is_infeasible = session.proven && untightened && !score.feasible();
        let (bounds, bound) = (bounds.clone(), bound.clone());
        let mut found =
            Solution { evaluation, arenas, bounds, bound, evaluations, in_flight, missed: Vec::new(), is_infeasible };
        found.judge(problem);
        let is_over = found.missed.is_empty() || !score.feasible();
        if nearest.as_ref().is_none_or(|nearest| found.violation() < nearest.violation()) {
            nearest = Some(found);
        }
        if is_over || options.stop.is_requested() {
            break;
        }
        for (device, short) in &over {
            let limit = &mut tight.devices[device.0 as usize].memory;
            *limit = limit.map(|bytes| bytes - *short);
        }
    }
    let none = || NoPlan::Targets { proven: false, shortages: Vec::new(), nearest: None };
    let mut found = nearest.ok_or_else(none)?;
    found.evaluations = evaluations;
    Ok(found)
}
