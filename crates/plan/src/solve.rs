//! From a problem to a solution: bounds, searches, and where no placement meets the targets, the nearest one.

use super::{
    DeviceId, GroupId, Problem,
    bound::{Bounds, LowerBound, critical_path::Tails, footprint},
    evaluation::Evaluation,
    memory_usage::MemoryUsage,
    no_plan::{Nearest, NoPlan, Shortage},
    placement::Placement,
    problem::{Objective, ProblemError},
    search::{Options, Session},
};
use crate::{deadline::Deadline, pipeline_depth};
use edgecut_graph::units::{Bytes, Joules, Micros};

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
    /// The limits and targets that it misses: empty for a plan.
    pub missed: Vec<Shortage>,
    /// Whether a complete search says that every placement misses some.
    pub is_infeasible: bool,
}

/// How often limits are tightened by what packing adds to the load before that is given up.
const REPACKINGS: usize = 6;
/// Share of all evaluations, and of the time, that each of these may take at least.
const FOR_REPACKING: u64 = 4;
/// A target is missed if it is exceeded by more than rounding.
pub(crate) const SLACK: f64 = 1.0 + 1e-9;

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
            &pipeline_depth::waiting_memory(&evaluation),
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

/// What `placement` is worth, without looking for a better one.
///
/// # Errors
/// If it does not fit the problem, or misses limits or targets.
pub fn judge(problem: &Problem, placement: Placement) -> Result<Solution, NoPlan> {
    evaluate(problem, placement)?.met()
}

/// What `placement` is worth, and what it misses.
///
/// # Errors
/// If it does not fit the problem.
pub fn evaluate(problem: &Problem, placement: Placement) -> Result<Solution, NoPlan> {
    let bounds = Bounds::of(problem);
    let bound = bounds.on(problem.objective);
    let evaluation = Evaluation::of(problem, placement).map_err(|e| ProblemError { what: e.to_string() })?;
    let arenas = arenas(&evaluation.memory)?;
    let mut solution = Solution {
        evaluation,
        arenas,
        bounds,
        bound,
        evaluations: 1,
        in_flight: None,
        missed: Vec::new(),
        is_infeasible: false,
    };
    solution.stream(problem)?;
    Ok(solution)
}

/// The groups that run on no device.
pub(crate) fn unsupported(problem: &Problem) -> Vec<Shortage> {
    let nowhere = problem.groups.iter().filter(|group| group.costs.iter().all(Option::is_none));
    nowhere.map(|group| Shortage::Unsupported { group: group.label.clone() }).collect()
}

/// What no placement of `problem` meets, by bounds alone.
pub(crate) fn proof(problem: &Problem, bounds: &Bounds) -> Vec<Shortage> {
    let mut shortages = unsupported(problem);
    for id in problem.group_ids() {
        let able = problem.device_ids().filter_map(|d| Some((d, footprint::group(problem, id, d)?)));
        let group = problem.group(id).label.clone();
        let short = |(d, need): (DeviceId, Bytes)| {
            let limit = problem.device(d).memory.unwrap_or(Bytes(u64::MAX));
            (limit.shortfall(need), need, d)
        };
        if let Some((short, need, device)) = able.map(short).min_by_key(|s| (s.0, s.2)).filter(|s| s.0 > Bytes::ZERO) {
            shortages.push(Shortage::Group { group, need, short, device: problem.device(device).device_name() });
        }
    }
    shortages.extend(parameters(problem));
    shortages.extend(critical_path(problem, bounds));
    shortages.extend(work(problem, bounds));
    shortages
}

/// That the latency target is below the bound on the latency, if it is.
pub(crate) fn critical_path(problem: &Problem, bounds: &Bounds) -> Option<Shortage> {
    let (target, length) = (problem.targets.latency?, bounds.latency.value);
    (length.0 > target.0 * SLACK).then(|| {
        let chain = Tails::of(problem).critical_path(problem);
        let name = |g: Option<&(GroupId, DeviceId)>| g.map_or(String::new(), |(g, _)| problem.group(*g).label.clone());
        let (first, last, on) = (name(chain.first()), name(chain.last()), "on its best devices");
        Shortage::Chain { groups: chain.len(), first, last, length, on, target, excess: length - target }
    })
}

/// That all parameters are larger than all memories together, if they are.
pub(crate) fn parameters(problem: &Problem) -> Option<Shortage> {
    let room: Bytes = problem.devices.iter().map(|device| device.memory).sum::<Option<Bytes>>()?;
    let need = footprint::parameters(problem);
    let short = room.shortfall(need);
    (short > Bytes::ZERO).then_some(Shortage::Parameters { need, short })
}

/// That the work is too much for the target of throughput, if it is.
pub(crate) fn work(problem: &Problem, bounds: &Bounds) -> Option<Shortage> {
    let (target, interval) = (Micros(1e6 / problem.targets.throughput?), bounds.interval.value);
    (interval.0 > target.0 * SLACK).then(|| Shortage::Work { interval, target, excess: interval - target })
}

fn fullest(problem: &Problem, evaluation: &Evaluation, device: DeviceId, short: Bytes) -> Shortage {
    let at = evaluation.memory.get(device.0 as usize).map(|a| a.peak_at).unwrap_or_default();
    let job = evaluation.task_at(device.0 as usize, at);
    let group = job.map_or("nothing".to_string(), |j| problem.group(evaluation.task_graph.task(j).group).label.clone());
    let limit = problem.device(device).memory.unwrap_or_default();
    Shortage::Memory { device: problem.device(device).device_name(), group, short, limit }
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

    /// The inputs in flight that keep the busiest device or link busy, or as many as the limits of `problem` have room
    /// for; and the time between results then.
    ///
    /// # Errors
    /// If what is held does not fit in 63 bits.
    pub fn sustained(&self, problem: &Problem) -> Result<(u32, Micros), ProblemError> {
        let mut stream = self.clone();
        if stream.in_flight.is_none() {
            stream.fill(problem)?;
        }
        Ok((stream.in_flight.unwrap_or(1), stream.interval()))
    }

    /// Makes a plan for a stream of one whose memory was counted for one input at a time: with as many inputs in flight
    /// as are wanted and the limits of `problem` have room for, at least one. Finds out what it misses; nothing else
    /// changes where `problem` is about no stream, or that is done already.
    ///
    /// # Errors
    /// If what is held does not fit in 63 bits.
    pub fn stream(&mut self, problem: &Problem) -> Result<(), ProblemError> {
        if pipeline_depth::is_stream(problem.objective, &problem.targets) && self.in_flight.is_none() {
            self.fill(problem)?;
            if problem.objective == Objective::Throughput {
                self.evaluation.score.value = self.interval().0;
            }
        }
        self.judge(problem);
        Ok(())
    }

    /// Limits a plan for a stream to `most` inputs in flight.
    ///
    /// # Errors
    /// If what is held does not fit in 63 bits.
    pub fn at_most(&mut self, most: u32, problem: &Problem) -> Result<(), ProblemError> {
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
        self.judge(problem);
        Ok(())
    }

    /// Sets the number of inputs in flight: the requested one, or fewer where the limits of `problem` require it; one if
    /// not even that fits.
    ///
    /// # Errors
    /// If what is held does not fit in 63 bits.
    pub(super) fn fill(&mut self, problem: &Problem) -> Result<(), ProblemError> {
        let (single, waiting) = (arenas(&self.evaluation.memory)?, pipeline_depth::waiting_memory(&self.evaluation));
        let with = |count: u32| pipeline_depth::reserved_memory(&single, &waiting, count);
        let mut counts = (1..=pipeline_depth::desired(&self.evaluation)).rev();
        let count = counts.find(|count| overfull(problem, &self.evaluation, &with(*count)).is_empty()).unwrap_or(1);
        (self.arenas, self.in_flight) = (with(count), Some(count));
        Ok(())
    }

    /// Finds out which limits and targets of `problem` it misses.
    pub(super) fn judge(&mut self, problem: &Problem) {
        let over = overfull(problem, &self.evaluation, &self.arenas);
        let full = over.iter().map(|(device, short)| fullest(problem, &self.evaluation, *device, *short));
        let latency = self.evaluation.latency();
        let slow = problem.targets.latency.filter(|target| latency > *target);
        let slow = slow.map(|target| Shortage::Latency { latency, target, excess: latency - target });
        let interval = self.interval();
        let rare = problem.targets.throughput.map(|rate| Micros(1e6 / rate));
        let rare = rare.filter(|target| interval.0 > target.0 * SLACK);
        let rare = rare.map(|target| Shortage::Interval { interval, target, excess: interval - target });
        self.missed = full.chain(slow).chain(rare).collect();
    }

    /// By how much limits and targets are missed together, each relative to itself.
    pub fn violation(&self) -> f64 {
        self.missed.iter().map(Shortage::excess).sum()
    }

    /// By how much limits and targets would have to be looser: of devices that are short of memory the one that is most so
    /// counts. Searches go by [`Solution::violation`], which falls with every device that is short of less.
    pub fn distance(&self) -> f64 {
        let missed = |of_memory: bool| self.missed.iter().filter(move |shortage| shortage.is_of_memory() == of_memory);
        let memory = missed(true).map(Shortage::excess).fold(0.0, f64::max);
        memory + missed(false).map(Shortage::excess).sum::<f64>()
    }

    /// Whether it is better than `other`: nearer to limits and targets, or as near and of a better value.
    pub fn is_better(&self, other: &Solution) -> bool {
        (self.violation(), self.value()) < (other.violation(), other.value())
    }

    /// Itself, if it meets limits and targets.
    ///
    /// # Errors
    /// If it does not.
    pub fn met(self) -> Result<Solution, NoPlan> {
        if self.missed.is_empty() {
            return Ok(self);
        }
        let nearest = Some(Box::new(self.figures(self.bounds.clone())));
        Err(NoPlan::Targets { proven: self.is_infeasible, shortages: self.missed, nearest })
    }

    /// Its figures, and `bounds` on those of every plan, for a message about what it misses.
    pub(crate) fn figures(&self, bounds: Bounds) -> Nearest {
        let reserved: Vec<Bytes> = self.reserved().collect();
        Nearest {
            latency: self.evaluation.latency(),
            interval: self.interval(),
            memory: reserved.iter().copied().max().unwrap_or_default(),
            reserved,
            bounds,
            shortages: self.missed.clone(),
        }
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
            Objective::Energy => Joules(value).to_string(),
        }
    }
}
