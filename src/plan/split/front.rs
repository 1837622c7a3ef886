//! More than one plan: the front of plans that no other beats in everything, and what each server is worth.

use std::{collections::BTreeSet, fmt};

use super::{Answer, Task, plan};
use crate::{
    plan::{problem::Objective, search::Options, solve::NoPlan},
    units::{Bytes, Micros},
};

/// One plan of a front.
#[derive(Debug, Clone)]
pub struct Point {
    pub answer: Answer,
    pub latency: Micros,
    /// Between results, when inputs are pipelined.
    pub interval: Micros,
    /// Of the fullest device.
    pub peak: Bytes,
}

/// What a plan would be without one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Without {
    pub server: String,
    /// The objective's value then, over its value now; `None` where no plan meets the targets then.
    pub ratio: Option<f64>,
}

/// Memory limits tried between the smallest peak and that of the fastest plan.
const LIMITS: usize = 5;

/// Plans of which none is beaten in latency, time between results and peak memory at once, the fastest first: the best
/// for each objective, and the fastest under memory limits between.
///
/// # Errors
/// If there is no plan for the task's own objective.
pub fn front(task: &Task<'_>, options: &Options) -> Result<Vec<Point>, NoPlan> {
    let mut points = vec![Point::of(plan(task, options)?)];
    for objective in [Objective::Latency, Objective::Throughput, Objective::Memory] {
        if objective != task.objective {
            points.extend(plan(&Task { objective, ..task.clone() }, options).ok().map(Point::of));
        }
    }
    let peaks = || points.iter().map(|point| point.peak.0 as f64);
    let (least, most) = (peaks().fold(f64::INFINITY, f64::min), peaks().fold(0.0, f64::max));
    for step in 1..=LIMITS {
        let limit = Bytes((least * (most / least.max(1.0)).powf(step as f64 / (LIMITS + 1) as f64)) as u64);
        let mut tight = Task { objective: Objective::Latency, ..task.clone() };
        for device in &mut tight.network.devices {
            device.memory = Some(device.memory.map_or(limit, |memory| memory.min(limit)));
        }
        points.extend(plan(&tight, options).ok().map(Point::of));
    }
    Ok(undominated(points))
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ratio {
            None => write!(f, "without server {} no plan was found", self.server),
            Some(ratio) if (ratio - 1.0).abs() < 5e-4 => {
                write!(f, "without server {} the plan is as good", self.server)
            }
            Some(ratio) => {
                let (percent, word) = (100.0 * (ratio - 1.0).abs(), if ratio < 1.0 { "better" } else { "worse" });
                write!(f, "without server {} the plan is {percent:.1} % {word}", self.server)
            }
        }
    }
}

impl Point {
    fn of(answer: Answer) -> Point {
        let evaluation = &answer.solution.evaluation;
        let (latency, interval, peak) = (evaluation.latency(), evaluation.loads.interval(), evaluation.peak());
        Point { answer, latency, interval, peak }
    }

    fn beats(&self, other: &Point) -> bool {
        self.latency.0 <= other.latency.0 && self.interval.0 <= other.interval.0 && self.peak <= other.peak
    }
}

fn undominated(points: Vec<Point>) -> Vec<Point> {
    let mut front: Vec<Point> = Vec::new();
    for point in points {
        if !front.iter().any(|kept| kept.beats(&point)) {
            front.retain(|kept| !point.beats(kept));
            front.push(point);
        }
    }
    front.sort_by(|a, b| a.latency.0.total_cmp(&b.latency.0).then(a.peak.cmp(&b.peak)));
    front
}

/// What the objective's value would be without each server that `answer` uses, those of source and sink apart.
pub fn without(task: &Task<'_>, answer: &Answer, options: &Options) -> Vec<Without> {
    let network = &task.network;
    let server = |device: u32| network.devices[device as usize].server.as_str();
    let used: BTreeSet<&str> = answer.solution.evaluation.work.jobs.iter().map(|job| server(job.device.0)).collect();
    let needed = [server(network.source.0), server(network.sink.0)];
    let spared = |name: &str| {
        let mut less = task.clone();
        for row in &mut less.costs {
            for (device, cost) in network.devices.iter().zip(row) {
                *cost = cost.filter(|_| device.server != name);
            }
        }
        let value = plan(&less, options).ok().map(|other| other.solution.value());
        Without { server: name.to_string(), ratio: value.map(|value| value / answer.solution.value()) }
    };
    used.into_iter().filter(|name| !needed.contains(name)).map(spared).collect()
}
