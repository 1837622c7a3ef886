//! A placement that is judged: what it is worth, what it reserves, what it misses, and how good a better one could be.

use super::{
    bound::{Bounds, LowerBound},
    evaluation::Evaluation,
    memory_usage::MemoryUsage,
    no_plan::{Nearest, NoPlan, Shortage},
    pipeline_depth,
    proof::SLACK,
    rank::Rank,
};
use crate::problem::{DeviceId, Objective, Problem, ProblemError, placement::Placement};
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

fn fullest(problem: &Problem, evaluation: &Evaluation, device: DeviceId, short: Bytes) -> Shortage {
    let at = evaluation.memory.get(device.0 as usize).map(|a| a.peak_at).unwrap_or_default();
    let job = evaluation.task_at(device.0 as usize, at);
    let group = job.map_or("nothing".to_string(), |j| problem.group(evaluation.task_graph.task(j).group).label.clone());
    let limit = problem.device(device).memory.unwrap_or_default();
    Shortage::Memory { device: problem.device(device).device_name(), group, short, limit }
}

/// The arenas of all devices, for one input at a time.
pub(crate) fn arenas(accounts: &[MemoryUsage]) -> Result<Vec<Bytes>, ProblemError> {
    let pack =
        |a: &MemoryUsage| a.pack().map(|packing| packing.height).map_err(|e| ProblemError { what: e.to_string() });
    accounts.iter().map(pack).collect()
}

/// The devices whose arena and parameters together are above their limit, and by how much.
pub(crate) fn overfull(problem: &Problem, evaluation: &Evaluation, arenas: &[Bytes]) -> Vec<(DeviceId, Bytes)> {
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
    pub(crate) fn sustained(&self, problem: &Problem) -> Result<(u32, Micros), ProblemError> {
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
                &pipeline_depth::waiting_memory(problem, &self.evaluation),
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
    pub(crate) fn fill(&mut self, problem: &Problem) -> Result<(), ProblemError> {
        let single = arenas(&self.evaluation.memory)?;
        let waiting = pipeline_depth::waiting_memory(problem, &self.evaluation);
        let with = |count: u32| pipeline_depth::reserved_memory(&single, &waiting, count);
        let mut counts = (1..=pipeline_depth::desired(&self.evaluation)).rev();
        let count = counts.find(|count| overfull(problem, &self.evaluation, &with(*count)).is_empty()).unwrap_or(1);
        (self.arenas, self.in_flight) = (with(count), Some(count));
        Ok(())
    }

    /// Finds out which limits and targets of `problem` it misses.
    pub(crate) fn judge(&mut self, problem: &Problem) {
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

    /// That of its score if it meets limits and targets, else by [`Solution::violation`].
    pub fn rank(&self) -> Rank {
        match self.missed.is_empty() {
            true => self.evaluation.score.rank(),
            false => Rank::new(self.violation(), self.value()),
        }
    }

    /// Whether it is better than `other`, without a tie-break.
    pub fn is_better(&self, other: &Solution) -> bool {
        let rank = |solution: &Solution| Rank::new(solution.violation(), solution.value());
        rank(self) < rank(other)
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
