//! What a placement is worth: all its figures, and the two numbers that searches compare.

use std::cmp::Ordering;

use super::{
    Problem,
    account::{Account, accounts},
    problem::Objective,
    simulate::{Loads, Timeline, loads, simulate},
    work::{JobId, Origin, PieceId, Placement, PlacementError, Work},
};
use crate::units::{Bytes, Micros};

/// A placement with everything that follows from it.
#[derive(Debug, Clone)]
pub struct Evaluation {
    pub placement: Placement,
    pub work: Work,
    pub times: Timeline,
    pub loads: Loads,
    pub accounts: Vec<Account>,
    pub score: Score,
}

/// How good a placement is: first how far from meeting the targets, then the objective.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// Excess over limits and targets, each as a fraction of its limit, summed; 0 if all are met.
    pub violation: f64,
    /// In the objective's unit: microseconds or bytes; the smaller the better.
    pub value: f64,
    /// Decides between equal values: the latency, and where that is the objective, the time between results.
    pub tie: f64,
}

impl Evaluation {
    /// Simulates `placement`.
    ///
    /// # Errors
    /// If it does not fit the problem.
    pub fn of(problem: &Problem, placement: Placement) -> Result<Evaluation, PlacementError> {
        let work = Work::expand(problem, &placement)?;
        let times = simulate(problem, &work);
        let loads = loads(problem, &work);
        let accounts = accounts(problem, &work, &times);
        let score = score(problem, &times, &loads, &accounts);
        Ok(Evaluation { placement, work, times, loads, accounts, score })
    }

    pub fn latency(&self) -> Micros {
        self.times.makespan
    }

    /// The largest load of memory of any device.
    pub fn peak(&self) -> Bytes {
        self.accounts.iter().map(|a| a.load).max().unwrap_or_default()
    }

    /// How many transfers over links there are on the way that the latency is the length of: what ended last waited for
    /// them one after the other.
    pub fn exchanges(&self) -> usize {
        let (work, times) = (&self.work, &self.times);
        let mut before: Vec<Option<JobId>> = vec![None; work.jobs.len()];
        for pair in work.sequences.iter().flat_map(|sequence| sequence.windows(2)) {
            before[pair[1].0 as usize] = Some(pair[0]);
        }
        let arrival = |piece: &PieceId| times.arrivals[piece.0 as usize].0;
        let results = (0u32..).map(PieceId).zip(&work.pieces).filter(|(_, piece)| piece.is_result).map(|(id, _)| id);
        let mut at = results.max_by(|a, b| arrival(a).total_cmp(&arrival(b)));
        let mut crossed = 0;
        while let Some(piece) = at {
            let mut job = match work.piece(piece).origin {
                Origin::Input => break,
                Origin::Transfer { from, link } => {
                    crossed += usize::from(link.is_some());
                    at = Some(from);
                    continue;
                }
                Origin::Job(job) => job,
            };
            // Back to a job that waited for something to arrive.
            at = loop {
                let start = times.starts[job.0 as usize].0;
                let last = work.job(job).inputs.iter().max_by(|a, b| arrival(a).total_cmp(&arrival(b)));
                match (last.filter(|last| arrival(last) >= start), before[job.0 as usize]) {
                    (Some(last), _) => break Some(*last),
                    (None, Some(earlier)) => job = earlier,
                    (None, None) => break None,
                }
            };
        }
        crossed
    }

    /// The job that a device runs, or ran last, at an instant.
    pub fn job_at(&self, device: usize, at: Micros) -> Option<JobId> {
        let sequence = self.work.sequences.get(device)?;
        let begun = sequence.iter().take_while(|job| self.times.starts[job.0 as usize] <= at);
        begun.last().or(sequence.first()).copied()
    }
}

impl Score {
    pub fn feasible(&self) -> bool {
        self.violation <= 0.0
    }

    pub fn total_cmp(&self, other: &Score) -> Ordering {
        self.violation
            .total_cmp(&other.violation)
            .then(self.value.total_cmp(&other.value))
            .then(self.tie.total_cmp(&other.tie))
    }

    pub fn better(&self, other: &Score) -> bool {
        self.total_cmp(other).is_lt()
    }
}

fn score(problem: &Problem, times: &Timeline, loads: &Loads, accounts: &[Account]) -> Score {
    let interval = loads.interval();
    let peak = accounts.iter().map(|a| a.load).max().unwrap_or_default();
    let mut violation = 0.0;
    for (device, account) in problem.devices.iter().zip(accounts) {
        if let Some(limit) = device.memory {
            violation += excess(account.load.0 as f64, limit.0 as f64);
        }
    }
    if let Some(target) = problem.targets.latency {
        violation += excess(times.makespan.0, target.0);
    }
    if let Some(rate) = problem.targets.throughput {
        violation += excess(interval.0 * rate / 1e6, 1.0);
    }
    let (value, tie) = match problem.objective {
        Objective::Latency => (times.makespan.0, interval.0),
        Objective::Throughput => (interval.0, times.makespan.0),
        Objective::Memory => (peak.0 as f64, times.makespan.0),
    };
    Score { violation, value, tie }
}

/// How far `value` is above `limit`, as a fraction of the limit.
fn excess(value: f64, limit: f64) -> f64 {
    if value <= limit { 0.0 } else { (value - limit) / limit.max(1.0) }
}
