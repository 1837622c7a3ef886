//! The evaluation of a placement: its task graph, timeline, loads and memory, and the score that searches compare.

use super::{
    energy,
    memory_usage::{MemoryUsage, memory_usage},
    rank::Rank,
    simulate::{Loads, Timeline, loads, simulate},
    task_graph::{ReplicaId, ReplicaOrigin, TaskGraph, TaskId},
};
use crate::problem::{
    Objective, Problem,
    placement::{Placement, PlacementError},
};
use edgecut_graph::units::{Bytes, Joules, Micros};

/// A placement with everything that follows from it.
#[derive(Debug, Clone)]
pub struct Evaluation {
    pub placement: Placement,
    pub task_graph: TaskGraph,
    pub timeline: Timeline,
    pub loads: Loads,
    /// By device.
    pub memory: Vec<MemoryUsage>,
    /// Of one run; of what is not known of the devices' power, nothing.
    pub energy: Joules,
    pub score: Score,
}

/// The quality of a placement: violation of limits and targets, objective, tie-break.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// Sum of the relative excesses over limits and targets; 0 if all are met.
    pub violation: f64,
    /// The objective in its unit, microseconds, bytes or joules; lower is better.
    pub value: f64,
    /// Tie-break: the latency, or the interval between results where latency is the objective.
    pub tie: f64,
}

impl Evaluation {
    /// Simulates `placement`.
    ///
    /// # Errors
    /// If it does not fit the problem.
    pub fn of(problem: &Problem, placement: Placement) -> Result<Evaluation, PlacementError> {
        let task_graph = TaskGraph::new(problem, &placement)?;
        let timeline = simulate(problem, &task_graph);
        let loads = loads(problem, &task_graph);
        let memory = memory_usage(problem, &task_graph, &timeline);
        let above_idle = task_graph.tasks.iter().map(|task| task.cost.energy_above_idle()).sum();
        let energy = energy::of_run(problem.idle_power(), timeline.makespan, above_idle);
        let score = score(problem, &timeline, &loads, &memory, energy);
        Ok(Evaluation { placement, task_graph, timeline, loads, memory, energy, score })
    }

    pub fn latency(&self) -> Micros {
        self.timeline.makespan
    }

    /// The largest memory load of any device.
    pub fn peak(&self) -> Bytes {
        self.memory.iter().map(|usage| usage.load).max().unwrap_or_default()
    }

    /// The number of link transfers on the critical path, traced back from the result that arrives last.
    pub fn critical_transfers(&self) -> usize {
        let (graph, timeline) = (&self.task_graph, &self.timeline);
        let mut previous: Vec<Option<TaskId>> = vec![None; graph.tasks.len()];
        for pair in graph.sequences.iter().flat_map(|sequence| sequence.windows(2)) {
            previous[pair[1].0 as usize] = Some(pair[0]);
        }
        let arrival = |replica: &ReplicaId| timeline.arrivals[replica.0 as usize].0;
        let results = (0u32..).map(ReplicaId).zip(&graph.replicas).filter(|(_, r)| r.is_result).map(|(id, _)| id);
        let mut at = results.max_by(|a, b| arrival(a).total_cmp(&arrival(b)));
        let mut transfers = 0;
        while let Some(replica) = at {
            let mut task = match graph.replica(replica).origin {
                ReplicaOrigin::Input => break,
                ReplicaOrigin::Transfer { from, link } => {
                    transfers += usize::from(link.is_some());
                    at = Some(from);
                    continue;
                }
                ReplicaOrigin::Task(task) => task,
            };
            // Back along the device's sequence to a task that waited for an operand.
            at = loop {
                let start = timeline.starts[task.0 as usize].0;
                let last = graph.task(task).inputs.iter().max_by(|a, b| arrival(a).total_cmp(&arrival(b)));
                match (last.filter(|last| arrival(last) >= start), previous[task.0 as usize]) {
                    (Some(last), _) => break Some(*last),
                    (None, Some(earlier)) => task = earlier,
                    (None, None) => break None,
                }
            };
        }
        transfers
    }

    /// The task that a device runs at an instant, or ran last before it.
    pub fn task_at(&self, device: usize, at: Micros) -> Option<TaskId> {
        let sequence = self.task_graph.sequences.get(device)?;
        let begun = sequence.iter().take_while(|task| self.timeline.starts[task.0 as usize] <= at);
        begun.last().or(sequence.first()).copied()
    }
}

impl Score {
    /// Whether all limits and targets are met.
    pub fn feasible(&self) -> bool {
        self.violation <= 0.0
    }

    pub fn rank(&self) -> Rank {
        Rank::new(self.violation, self.value).with_tie(self.tie)
    }

    pub fn better(&self, other: &Score) -> bool {
        self.rank() < other.rank()
    }
}

fn score(problem: &Problem, timeline: &Timeline, loads: &Loads, memory: &[MemoryUsage], energy: Joules) -> Score {
    let interval = loads.interval();
    let peak = memory.iter().map(|usage| usage.load).max().unwrap_or_default();
    let mut violation = 0.0;
    for (device, usage) in problem.devices.iter().zip(memory) {
        if let Some(limit) = device.memory {
            violation += excess(usage.load.0 as f64, limit.0 as f64);
        }
    }
    if let Some(target) = problem.targets.latency {
        violation += excess(timeline.makespan.0, target.0);
    }
    if let Some(rate) = problem.targets.throughput {
        violation += excess(interval.0 * rate / 1e6, 1.0);
    }
    let (value, tie) = match problem.objective {
        Objective::Latency => (timeline.makespan.0, interval.0),
        Objective::Throughput => (interval.0, timeline.makespan.0),
        Objective::Memory => (peak.0 as f64, timeline.makespan.0),
        Objective::Energy => (energy.0, timeline.makespan.0),
    };
    Score { violation, value, tie }
}

/// The excess of `value` over `limit`, relative to the limit.
fn excess(value: f64, limit: f64) -> f64 {
    if value <= limit { 0.0 } else { (value - limit) / limit.max(1.0) }
}
