//! From a problem to an answer: bounds, searches, and where no placement meets the targets, the reason.

use super::{
    DeviceId, GroupId, Problem,
    bound::{Bounds, LowerBound, critical_path::Tails, footprint},
    evaluation::Evaluation,
    memory_usage::MemoryUsage,
    placement::Placement,
    problem::{Objective, ProblemError},
    search::{Options, Session},
};
use crate::{deadline::Deadline, pipeline_depth};
use edgecut_graph::units::{Bytes, Micros};

/// The best placement found, and how good a better one could be.
#[derive(Debug, Clone)]
pub struct Solution {
    pub evaluation: Evaluation,
    /// By device: the arena with its tensors and workspaces.
    pub arenas: Vec<Bytes>,
    pub bounds: Bounds,
    /// On the objective; the placement's own value where the search has proved it best.
    pub bound: LowerBound<f64>,
    /// Placements that were evaluated.
    pub evaluations: u64,
    /// Of a plan for a stream: the number of inputs in flight; the arenas hold the tensors of all of them.
    pub in_flight: Option<u32>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NoPlan {
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error("{}{}", if *.proven { "no plan can meet the targets: " } else { "no plan that meets the targets was found: " }, list(.shortages))]
    Targets {
        /// Whether a bound or a complete search says that there is none.
        proven: bool,
        shortages: Vec<Shortage>,
    },
}

/// One way in which the targets are missed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Shortage {
    #[error("{group} runs on no device")]
    Unsupported { group: String },
    #[error("{group} alone needs {need}, which is {short} more than the largest memory that may run it, {device}, has")]
    Group { group: String, need: Bytes, short: Bytes, device: String },
    #[error("the parameters take {need}, which is {short} more than all memories together")]
    Parameters { need: Bytes, short: Bytes },
    #[error(
        "the chain of {groups} groups from {first} to {last} takes {length} on its best devices, {excess} more than the latency target of {target}"
    )]
    Chain { groups: usize, first: String, last: String, length: Micros, target: Micros, excess: Micros },
    #[error("the work spread evenly takes {interval} a result, {excess} more than the target of {target}")]
    Work { interval: Micros, target: Micros, excess: Micros },
    #[error("in the nearest plan {device} is short of {short} of its {limit} while {group} runs")]
    Memory { device: String, group: String, short: Bytes, limit: Bytes },
    #[error("in the nearest plan the latency is {latency}, {excess} more than the target of {target}")]
    Latency { latency: Micros, target: Micros, excess: Micros },
    #[error("in the nearest plan the time between results is {interval}, {excess} more than the target of {target}")]
    Interval { interval: Micros, target: Micros, excess: Micros },
}

/// How often limits are tightened by what packing adds to the load before that is given up.
const REPACKINGS: usize = 6;
/// Share of all evaluations, and of the time, that each of these may take at least.
const FOR_REPACKING: u64 = 4;

/// Finds a placement for `problem`.
///
/// # Errors
/// If the tables contradict each other, or no placement meets the targets; then with the reason.
pub fn solve(problem: &Problem, options: &Options) -> Result<Solution, NoPlan> {
    problem.check()?;
    let deadline = Deadline::new(options.cut_off);
    let bounds = Bounds::of(problem);
    let proven = impossible(problem, &bounds);
    if !proven.is_empty() {
        return Err(NoPlan::Targets { proven: true, shortages: proven });
    }
    let found =
        search(problem, options, &bounds, &deadline, pipeline_depth::is_stream(problem.objective, &problem.targets));
    match found {
        // Limits may leave room for fewer inputs at a time than the devices could keep busy.
        Err(NoPlan::Targets { .. }) if pipeline_depth::is_stream(problem.objective, &problem.targets) => {
            let mut fewer = search(problem, options, &bounds, &deadline, false)?;
            if fewer.stream(problem)? { Ok(fewer) } else { found }
        }
        found => found,
    }
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
    let mut nearest: Option<NoPlan> = None;
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
        let Some((score, whole)) = session.best.take() else {
            return Err(NoPlan::Targets { proven: session.proven, shortages: Vec::new() });
        };
        let placement = Placement::new(&whole.devices, &whole.order);
        let evaluation = Evaluation::of(problem, placement).map_err(|e| ProblemError { what: e.to_string() })?;
        if !score.feasible() {
            let missed =
                NoPlan::Targets { proven: session.proven && untightened, shortages: missed(problem, &evaluation) };
            return Err(nearest.unwrap_or(missed));
        }
        let in_flight = is_stream.then(|| pipeline_depth::desired(&evaluation));
        let arenas = pipeline_depth::reserved_memory(
            &arenas(&evaluation.memory)?,
            &pipeline_depth::waiting_memory(&evaluation),
            in_flight.unwrap_or(1),
        );
        let over = overfull(problem, &evaluation, &arenas);
        if over.is_empty() {
            if session.proven && evaluation.score.value > bound.value && untightened {
                bound = LowerBound { value: evaluation.score.value, by: "complete search" };
            }
            // Bounds of a solver are rounded.
            bound.value = bound.value.min(evaluation.score.value);
            return Ok(Solution { evaluation, arenas, bounds: bounds.clone(), bound, evaluations, in_flight });
        }
        for (device, short) in &over {
            let limit = &mut tight.devices[device.0 as usize].memory;
            *limit = limit.map(|bytes| bytes - *short);
        }
        nearest = Some(too_full(problem, &evaluation, &over));
    }
    Err(nearest.unwrap_or(NoPlan::Targets { proven: false, shortages: Vec::new() }))
}

/// What `placement` is worth, without looking for a better one.
///
/// # Errors
/// If it does not fit the problem, or misses the targets.
pub fn judge(problem: &Problem, placement: Placement) -> Result<Solution, NoPlan> {
    let bounds = Bounds::of(problem);
    let bound = bounds.on(problem.objective);
    let evaluation = Evaluation::of(problem, placement).map_err(|e| ProblemError { what: e.to_string() })?;
    if !evaluation.score.feasible() {
        return Err(NoPlan::Targets { proven: false, shortages: missed(problem, &evaluation) });
    }
    let arenas = arenas(&evaluation.memory)?;
    let over = overfull(problem, &evaluation, &arenas);
    if !over.is_empty() {
        return Err(too_full(problem, &evaluation, &over));
    }
    let mut solution = Solution { evaluation, arenas, bounds, bound, evaluations: 1, in_flight: None };
    match solution.stream(problem)? {
        true => Ok(solution),
        false => Err(NoPlan::Targets { proven: false, shortages: missed(problem, &solution.evaluation) }),
    }
}

/// What the bounds alone say cannot be met.
fn impossible(problem: &Problem, bounds: &Bounds) -> Vec<Shortage> {
    let mut shortages = Vec::new();
    for id in problem.group_ids() {
        let mut able = problem.device_ids().filter_map(|d| Some((d, footprint::group(problem, id, d)?))).peekable();
        let group = problem.group(id).name.clone();
        if able.peek().is_none() {
            shortages.push(Shortage::Unsupported { group });
            continue;
        }
        let short = |(d, need): (DeviceId, Bytes)| {
            let limit = problem.device(d).memory.unwrap_or(Bytes(u64::MAX));
            (limit.shortfall(need), need, d)
        };
        if let Some((short, need, device)) = able.map(short).min_by_key(|s| (s.0, s.2)).filter(|s| s.0 > Bytes::ZERO) {
            shortages.push(Shortage::Group { group, need, short, device: problem.device(device).full_name() });
        }
    }
    let room: Option<Bytes> = problem.devices.iter().map(|d| d.memory).sum::<Option<Bytes>>();
    let need = footprint::parameters(problem);
    if let Some(short) = room.map(|room| room.shortfall(need)).filter(|s| *s > Bytes::ZERO) {
        shortages.push(Shortage::Parameters { need, short });
    }
    let slack = 1.0 + 1e-9;
    if let Some(target) = problem.targets.latency.filter(|t| bounds.latency.value.0 > t.0 * slack) {
        let length = bounds.latency.value;
        let excess = length - target;
        let chain = Tails::of(problem).critical_path(problem);
        let name = |g: Option<&(GroupId, DeviceId)>| g.map_or(String::new(), |(g, _)| problem.group(*g).name.clone());
        let (first, last) = (name(chain.first()), name(chain.last()));
        shortages.push(Shortage::Chain { groups: chain.len(), first, last, length, target, excess });
    }
    if let Some(target) =
        problem.targets.throughput.map(|rate| Micros(1e6 / rate)).filter(|t| bounds.interval.value.0 > t.0 * slack)
    {
        let interval = bounds.interval.value;
        shortages.push(Shortage::Work { interval, target, excess: interval - target });
    }
    shortages
}

/// What a placement misses.
fn missed(problem: &Problem, evaluation: &Evaluation) -> Vec<Shortage> {
    let mut shortages = Vec::new();
    for (id, account) in problem.device_ids().zip(&evaluation.memory) {
        let limit = problem.device(id).memory.unwrap_or(Bytes(u64::MAX));
        let short = limit.shortfall(account.load);
        if short > Bytes::ZERO {
            shortages.push(fullest(problem, evaluation, id, short));
        }
    }
    let latency = evaluation.latency();
    if let Some(target) = problem.targets.latency.filter(|t| latency > *t) {
        shortages.push(Shortage::Latency { latency, target, excess: latency - target });
    }
    let interval = evaluation.loads.interval();
    if let Some(target) = problem.targets.throughput.map(|rate| Micros(1e6 / rate)).filter(|t| interval > *t) {
        shortages.push(Shortage::Interval { interval, target, excess: interval - target });
    }
    shortages
}

fn too_full(problem: &Problem, evaluation: &Evaluation, over: &[(DeviceId, Bytes)]) -> NoPlan {
    let shortages = over.iter().map(|(device, short)| fullest(problem, evaluation, *device, *short)).collect();
    NoPlan::Targets { proven: false, shortages }
}

fn fullest(problem: &Problem, evaluation: &Evaluation, device: DeviceId, short: Bytes) -> Shortage {
    let at = evaluation.memory.get(device.0 as usize).map(|a| a.peak_at).unwrap_or_default();
    let job = evaluation.task_at(device.0 as usize, at);
    let group = job.map_or("nothing".to_string(), |j| problem.group(evaluation.task_graph.task(j).group).name.clone());
    let limit = problem.device(device).memory.unwrap_or_default();
    Shortage::Memory { device: problem.device(device).full_name(), group, short, limit }
}

/// The arenas of all devices, for one input at a time.
pub(super) fn arenas(accounts: &[MemoryUsage]) -> Result<Vec<Bytes>, ProblemError> {
    let pack =
        |a: &MemoryUsage| a.pack().map(|packing| packing.height).map_err(|e| ProblemError { what: e.to_string() });
    accounts.iter().map(pack).collect()
}

/// The devices whose arena and parameters together are above their limit, and by how much.
fn overfull(problem: &Problem, evaluation: &Evaluation, arenas: &[Bytes]) -> Vec<(DeviceId, Bytes)> {
    let reserved = evaluation.memory.iter().zip(arenas).map(|(account, arena)| account.parameters + *arena);
    let over = problem.device_ids().zip(reserved).filter_map(|(id, reserved)| {
        let short = problem.device(id).memory?.shortfall(reserved);
        (short > Bytes::ZERO).then_some((id, short))
    });
    over.collect()
}

impl Solution {
    /// The objective's value.
    pub fn value(&self) -> f64 {
        self.evaluation.score.value
    }

    /// Between results: the load of the busiest device or link, and no shorter than the inputs in flight allow.
    pub fn interval(&self) -> Micros {
        let loads = self.evaluation.loads.interval();
        self.in_flight.map_or(loads, |count| loads.max(Micros(self.evaluation.latency().0 / f64::from(count))))
    }

    /// Makes a plan for a stream of one whose memory was counted for one input at a time: with as many inputs in flight
    /// as are wanted and the limits of `problem` have room for. False if the targets are missed then. Nothing changes
    /// where `problem` is about no stream, or that is done already.
    ///
    /// # Errors
    /// If what is held does not fit in 63 bits.
    pub fn stream(&mut self, problem: &Problem) -> Result<bool, ProblemError> {
        if !pipeline_depth::is_stream(problem.objective, &problem.targets) || self.in_flight.is_some() {
            return Ok(true);
        }
        if !self.fill(problem)? {
            return Ok(false);
        }
        if problem.objective == Objective::Throughput {
            self.evaluation.score.value = self.interval().0;
        }
        Ok(self.too_slow(problem).is_none())
    }

    /// By how much the target of throughput is missed, if it is.
    fn too_slow(&self, problem: &Problem) -> Option<Shortage> {
        let interval = self.interval();
        let rate = problem.targets.throughput.filter(|rate| interval.0 * rate > 1e6 * (1.0 + 1e-9))?;
        let target = Micros(1e6 / rate);
        Some(Shortage::Interval { interval, target, excess: interval - target })
    }

    /// Limits a plan for a stream to `most` inputs in flight.
    ///
    /// # Errors
    /// If the target of throughput is missed then.
    pub fn at_most(&mut self, most: u32, problem: &Problem) -> Result<(), NoPlan> {
        if self.in_flight.is_some_and(|count| count > most.max(1)) {
            let single = arenas(&self.evaluation.memory)?;
            self.in_flight = Some(most.max(1));
            self.arenas = pipeline_depth::reserved_memory(
                &single,
                &pipeline_depth::waiting_memory(&self.evaluation),
                most.max(1),
            );
            if problem.objective == Objective::Throughput {
                self.evaluation.score.value = self.interval().0;
            }
        }
        match self.too_slow(problem) {
            None => Ok(()),
            Some(missed) => Err(NoPlan::Targets { proven: false, shortages: vec![missed] }),
        }
    }

    /// Sets the number of inputs in flight: the requested one, or fewer where the limits of `problem` require it; false
    /// if not even one fits.
    ///
    /// # Errors
    /// If what is held does not fit in 63 bits.
    pub(super) fn fill(&mut self, problem: &Problem) -> Result<bool, ProblemError> {
        let (single, waiting) = (arenas(&self.evaluation.memory)?, pipeline_depth::waiting_memory(&self.evaluation));
        let with = |count: u32| pipeline_depth::reserved_memory(&single, &waiting, count);
        let counts = (1..=pipeline_depth::desired(&self.evaluation)).rev();
        let mut fitting = counts.filter(|count| overfull(problem, &self.evaluation, &with(*count)).is_empty());
        let Some(count) = fitting.next() else { return Ok(false) };
        (self.arenas, self.in_flight) = (with(count), Some(count));
        Ok(true)
    }

    /// By device: what it must have, parameters and arena.
    pub fn reserved(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.evaluation.memory.iter().zip(&self.arenas).map(|(account, arena)| account.parameters + *arena)
    }

    /// How far the value may be above the best possible, as a fraction of the value.
    pub fn gap(&self) -> f64 {
        let value = self.value();
        if value <= 0.0 { 0.0 } else { ((value - self.bound.value) / value).max(0.0) }
    }

    /// The value in the objective's unit.
    pub fn display(&self, objective: Objective, value: f64) -> String {
        match objective {
            Objective::Latency | Objective::Throughput => Micros(value).to_string(),
            Objective::Memory => Bytes(value as u64).to_string(),
        }
    }
}

fn list(shortages: &[Shortage]) -> String {
    if shortages.is_empty() {
        return "every placement that was tried is impossible".into();
    }
    let shown: Vec<String> = shortages.iter().take(4).map(|s| s.to_string()).collect();
    let more = shortages.len().saturating_sub(shown.len());
    let tail = if more > 0 { format!("; and {more} more") } else { String::new() };
    shown.join("; ") + &tail
}
