//! Plans for devices that have too little memory for what they are given: each run of groups that needs too much is
//! scheduled into less by [`memory::model`](crate::memory::model), and the plan that comes of it is simulated, accounted
//! for and packed as any other.
//!
//! The placements tried are those that are best under looser limits; the costs of parts are estimates.
//!
//! | module | what it does |
//! |---|---|
//! | `run` | a run of groups, and the schedules found for it |
//! | `rewrite` | the plan with schedules written out |

mod rewrite;
mod run;

use std::collections::BTreeMap;

use self::{
    rewrite::rewritten,
    run::{Run, StepCost},
};
use super::{
    DeviceId, GroupId, Problem,
    bound::Bounded,
    evaluate::Evaluation,
    problem::ProblemError,
    schedule::Schedule,
    search::Options,
    solve::{NoPlan, judge},
    split::{Answer, Expanded, Task, plan},
    work::Placement,
};
use crate::{
    memory::fit,
    units::{Bytes, Micros},
};

/// A plan, and the schedules by which it keeps its limits.
#[derive(Debug, Clone)]
pub struct Fitted {
    pub answer: Answer,
    pub schedules: Vec<Schedule>,
}

impl From<Answer> for Fitted {
    /// A plan that keeps its limits without schedules.
    fn from(answer: Answer) -> Fitted {
        Fitted { answer, schedules: Vec::new() }
    }
}

impl Fitted {
    /// The plan at other `times` of its groups, then all of it, links too, so much slower or faster that what it `takes` is what
    /// is `wanted`: what times do not explain of that has no place of its own. If it is faster, its bound is lower by as much: other
    /// plans would have been faster too.
    ///
    /// # Errors
    /// If it misses the targets then.
    pub fn retimed(
        &self,
        times: &BTreeMap<GroupId, Micros>,
        wanted: Micros,
        takes: impl Fn(&Evaluation) -> Micros,
    ) -> Result<Answer, NoPlan> {
        let Answer { solution: before, expanded, .. } = &self.answer;
        let placement = || before.evaluation.placement.clone();
        let first = timed(&expanded.problem, times, 1.0);
        let now = takes(&Evaluation::of(&first, placement()).map_err(|e| ProblemError { what: e.to_string() })?);
        let factor = if now > Micros::ZERO { wanted.0 / now.0 } else { 1.0 };
        let problem = timed(&expanded.problem, times, factor);
        let mut solution = judge(&problem, placement())?;
        let faster = if before.value() > 0.0 { (solution.value() / before.value()).min(1.0) } else { 1.0 };
        solution.bound = Bounded { value: before.bound.value * faster, by: before.bound.by };
        solution.evaluations = before.evaluations;
        Ok(Answer { solution, expanded: Expanded { problem, ..expanded.clone() }, ..self.answer.clone() })
    }
}

/// `problem` with `times` of its groups, wherever they are computed; they and its links take all of it by `factor`.
fn timed(problem: &Problem, times: &BTreeMap<GroupId, Micros>, factor: f64) -> Problem {
    let mut timed = problem.clone();
    for (id, group) in (0u32..).map(GroupId).zip(&mut timed.groups) {
        for cost in group.costs.iter_mut().flatten() {
            cost.time = Micros(factor * times.get(&id).unwrap_or(&cost.time).0);
        }
    }
    for link in &mut timed.links {
        (link.latency, link.per_byte) = (Micros(factor * link.latency.0), factor * link.per_byte);
    }
    timed
}

/// Limits that placements are found under, as multiples of the real ones; without any at last.
const LOOSER: [Option<f64>; 6] = [Some(1.1), Some(1.25), Some(1.5), Some(2.0), Some(4.0), None];
/// Part of the evaluations, and of the time, that each of these gets.
const SHARE: u32 = 4;
/// Steps of schedules that are looked at for one run of groups, for each evaluation that the searches may make.
const STEPS: u64 = 200;
/// How often schedules are taken smaller because the whole account is above a limit.
const TIGHTENINGS: usize = 6;

/// The best plan for `task` in which devices that are given too much compute it in schedules that need less; `None` if
/// none keeps the limits and targets. Deterministic by seed and budget, but for the searches' own cut-off.
pub fn fitted(task: &Task<'_>, options: &Options) -> Option<Fitted> {
    let few = options.part(SHARE, task.names.len());
    let budget = options.evaluations(task.names.len()).saturating_mul(STEPS);
    let effort = fit::Options { seed: options.seed, budget, cut_off: None };
    let mut best: Option<Fitted> = None;
    let mut seen: Vec<Placement> = Vec::new();
    for factor in LOOSER {
        let mut loose = task.clone();
        for device in &mut loose.network.devices {
            let looser = |limit: Bytes, factor: f64| Bytes((limit.0 as f64 * factor) as u64);
            device.memory = device.memory.zip(factor).map(|(limit, factor)| looser(limit, factor));
        }
        let Ok(answer) = plan(&loose, &few) else { continue };
        if seen.contains(&answer.solution.evaluation.placement) {
            continue;
        }
        seen.push(answer.solution.evaluation.placement.clone());
        if let Some(found) = within(task, answer, &effort) {
            let value = |fitted: &Fitted| fitted.answer.solution.value();
            best = best.filter(|best| value(best) <= value(&found)).or(Some(found));
        }
    }
    best
}

/// `answer` with what is over the limits of `task` scheduled into them.
fn within(task: &Task<'_>, answer: Answer, effort: &fit::Options) -> Option<Fitted> {
    let evaluation = &answer.solution.evaluation;
    let limit = |device: usize| task.network.devices[device].memory.unwrap_or(Bytes(u64::MAX));
    let is_over: Vec<bool> = answer.solution.reserved().enumerate().map(|(d, reserved)| reserved > limit(d)).collect();
    // What is held for good no schedule makes smaller.
    if evaluation.accounts.iter().enumerate().any(|(device, account)| account.parameters >= limit(device)) {
        return None;
    }
    let problem = &answer.expanded.problem;
    let over = (0u32..).zip(&is_over).filter(|(_, is_over)| **is_over).map(|(device, _)| DeviceId(device));
    let runs: Vec<Run<'_>> = over.flat_map(|device| Run::all(task, &answer, device, effort)).collect();
    let mut slack = vec![0u64; problem.devices.len()];
    for _ in 0..TIGHTENINGS {
        let mut chosen: Vec<(Schedule, Vec<StepCost>)> = Vec::new();
        for run in &runs {
            let device = run.device.0 as usize;
            let taken = run.beside.0.saturating_add(slack[device]);
            chosen.extend(run.within(limit(device).0.saturating_sub(taken)));
        }
        let mut made = rewritten(task, &answer, chosen)?;
        let meets = made.answer.solution.stream(&made.answer.expanded.problem).ok()?;
        let reserved: Vec<Bytes> = made.answer.solution.reserved().collect();
        let short = |device: usize| limit(device).shortfall(reserved[device]).0;
        if (0..reserved.len()).all(|device| short(device) == 0) {
            return (meets && made.answer.solution.evaluation.score.feasible()).then_some(made);
        }
        (0..reserved.len()).for_each(|device| slack[device] += short(device));
    }
    None
}
