//! More than one plan: the front of plans that no other beats in everything, the best of them within limits, and what
//! each server is worth.

use std::{collections::BTreeSet, fmt};

use super::{Answer, Task, bound::bound, plan};
use crate::{
    plan::{
        bound::Bounds,
        flight,
        problem::Objective,
        search::Options,
        solve::{NoPlan, arenas},
    },
    units::{Bytes, Micros},
};

/// One plan of a front.
#[derive(Debug, Clone)]
pub struct Point {
    pub answer: Answer,
    pub latency: Micros,
    /// Between results, when inputs are pipelined.
    pub interval: Micros,
    /// What the fullest device must have: parameters and arena.
    pub peak: Bytes,
}

/// What a plan would be without one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Without {
    pub server: String,
    /// The objective's value then, over its value now; `None` where no plan meets the targets then.
    pub ratio: Option<f64>,
}

/// Memory limits tried from the smallest peak on up to that of the fastest plan, which was found without one.
const LIMITS: usize = 9;
/// Part of the evaluations, and of the time, that each of these gets.
const SHARE: u32 = 4;

/// Plans of which none is beaten in latency, time between results and peak memory at once, the fastest first: the best
/// for each objective, and the best under memory limits from the smallest peak on.
///
/// # Errors
/// If there is no plan for the task's own objective.
pub fn front(task: &Task<'_>, options: &Options) -> Result<Vec<Point>, NoPlan> {
    let mut points: Vec<Point> = Point::of(task, plan(task, options)?).into_iter().collect();
    for objective in [Objective::Latency, Objective::Throughput, Objective::Memory] {
        if objective != task.objective {
            points.extend(
                plan(&Task { objective, ..task.clone() }, options).ok().and_then(|answer| Point::of(task, answer)),
            );
        }
    }
    let groups = task.names.len();
    let few = options.part(SHARE, groups);
    let peaks = || points.iter().map(|point| point.peak.0 as f64);
    let (least, most) = (peaks().fold(f64::INFINITY, f64::min), peaks().fold(0.0, f64::max));
    let between = match task.objective {
        Objective::Throughput => Objective::Throughput,
        Objective::Latency | Objective::Memory => Objective::Latency,
    };
    for step in 0..LIMITS {
        let limit = Bytes((least * (most / least.max(1.0)).powf(step as f64 / LIMITS as f64)) as u64);
        let mut tight = Task { objective: between, ..task.clone() };
        for device in &mut tight.network.devices {
            device.memory = Some(device.memory.map_or(limit, |memory| memory.min(limit)));
        }
        points.extend(plan(&tight, &few).ok().and_then(|answer| Point::of(task, answer)));
    }
    Ok(undominated(points))
}

/// The best plan for `task` within its limits on memory, by looking at plans that know nothing of the limits.
///
/// If all devices have one and the same limit, the plans are those of the [`front`] without it: they do not depend on
/// the limit, so a looser one never gives a worse plan, and no plan is worse than a point of the front. Only if none of
/// them keeps within the limits, and where devices have limits of their own, is a plan made for just these limits.
///
/// # Errors
/// If no plan keeps within the limits; then with the reason.
pub fn within(task: &Task<'_>, options: &Options) -> Result<Answer, NoPlan> {
    let mut limits = task.network.devices.iter().map(|device| device.memory);
    let first = limits.next().flatten();
    let alike = limits.all(|limit| limit == first);
    if first.is_none() && alike {
        return plan(task, options);
    }
    let mut free = task.clone();
    free.network.devices.iter_mut().for_each(|device| device.memory = None);
    let points = front(&free, options).unwrap_or_default();
    let fitting = points.into_iter().filter_map(|point| limited(task, point.answer));
    let value = |answer: &Answer| value(task.objective, answer);
    let best = fitting.min_by(|a, b| value(&a.0).total_cmp(&value(&b.0)));
    let own = if best.is_some() && alike { None } else { Some(plan(task, options)) };
    let (mut best, is_foreign) = match (best, own) {
        (Some(best), Some(Ok(own))) if value(&own) < value(&best.0) => (own, false),
        (Some(best), _) => best,
        (None, own) => return own.unwrap_or_else(|| plan(task, options)),
    };
    if is_foreign {
        // It was planned for another objective, whose bound says nothing here.
        let whole = Bounds::of(&best.expanded.problem);
        let unsplit = task.expand(&Default::default()).map(|unsplit| bound(task, &unsplit.problem));
        best.solution.bound = unsplit.unwrap_or_else(|_| whole.on(task.objective));
        best.solution.bounds = whole;
        best.whole = None;
    }
    Ok(best)
}

/// `answer`, which was planned without limits, as an answer to `task`, and whether it was planned for another objective;
/// `None` if a device has no room for what it is given.
fn limited(task: &Task<'_>, mut answer: Answer) -> Option<(Answer, bool)> {
    let (problem, solution) = (&mut answer.expanded.problem, &mut answer.solution);
    for (device, given) in problem.devices.iter_mut().zip(&task.network.devices) {
        device.memory = given.memory;
    }
    let is_foreign = problem.objective != task.objective;
    problem.objective = task.objective;
    // As many inputs under way as these limits have room for.
    if solution.in_flight.take().is_some() {
        solution.arenas = arenas(&solution.evaluation.accounts).ok()?;
    }
    if !solution.stream(problem).ok()? {
        return None;
    }
    let limits = task.network.devices.iter().map(|device| device.memory.unwrap_or(Bytes(u64::MAX)));
    let fits = solution.reserved().zip(limits).all(|(reserved, limit)| reserved <= limit);
    answer.solution.evaluation.score.value = value(task.objective, &answer);
    fits.then_some((answer, is_foreign))
}

/// What a plan is worth by an objective, the smaller the better.
pub fn value(objective: Objective, answer: &Answer) -> f64 {
    let evaluation = &answer.solution.evaluation;
    match objective {
        Objective::Latency => evaluation.latency().0,
        Objective::Throughput => answer.solution.interval().0,
        Objective::Memory => evaluation.peak().0 as f64,
    }
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
    /// `None` if a stream, where `task` is about one, has no room.
    fn of(task: &Task<'_>, mut answer: Answer) -> Option<Point> {
        let is_stream = flight::is_stream(task.objective, &task.targets);
        if is_stream && answer.solution.in_flight.is_none() && !answer.solution.fill(&answer.expanded.problem).ok()? {
            return None;
        }
        let evaluation = &answer.solution.evaluation;
        let (latency, interval) = (evaluation.latency(), answer.solution.interval());
        let peak = answer.solution.reserved().max().unwrap_or_default();
        Some(Point { answer, latency, interval, peak })
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
