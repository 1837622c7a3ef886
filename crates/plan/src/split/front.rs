//! More than one plan: the Pareto front, and the best of it within memory limits.

use super::{
    bound::bound_by,
    solve::{met, nearest},
};
use crate::{
    candidate::Candidate,
    judge::{no_plan::NoPlan, pipeline_depth, solution::arenas},
    problem::Objective,
    request::{PlanRequest, goal::Goal},
};
use edgecut_graph::units::{Bytes, Micros};

/// Plans none of which is dominated in latency, time between results and peak memory, the fastest first.
#[derive(Debug, Clone)]
pub struct Front {
    pub points: Vec<Point>,
    /// Whether all searches ended of themselves: else a search that was stopped, or left out, might have found more.
    pub is_complete: bool,
}

/// One plan of a front.
#[derive(Debug, Clone)]
pub struct Point {
    pub candidate: Candidate,
    pub latency: Micros,
    /// Between results, when inputs are pipelined.
    pub interval: Micros,
    /// What the fullest device must have: parameters and arena.
    pub peak: Bytes,
    /// The latency of a pilot run, if it was run.
    pub measured: Option<Micros>,
}

/// Memory limits that are tried, from the smallest peak up to that of the fastest plan, which is found without one.
const LIMITS: usize = 9;
/// Limits below the smallest peak, as multiples of it: the nearest placements to them are good ones for schedules.
const BELOW_LEAST: [f64; 3] = [0.9, 0.8, 0.7];
/// The part (one over it) of the evaluations, and of the time, that each of these gets.
const SEARCH_PART: u32 = 4;
/// Searches of [`searched`] after the first, at most.
const SEARCHES: usize = 3 + LIMITS;
/// The part of the time limit after which plans without splits are no longer looked for: they are found soon, and searches for
/// splits start from them.
const WHOLE_SHARE: f64 = 0.25;

/// The front of the best plans for each objective, and of the best under memory limits from the smallest peak on. `grown` is
/// called with what is found so far whenever that becomes better. Within a time limit each search has its part of it, and
/// plans without splits come first: without one, the searches for splits find them too.
///
/// # Errors
/// If no plan meets limits and targets.
pub fn front(request: &PlanRequest<'_>, mut grown: impl FnMut(&[Point])) -> Result<Front, NoPlan> {
    let mut points: Vec<Point> = Vec::new();
    let mut take = |point: Point| {
        if point.is_met() && add(&mut points, point) {
            grown(&points);
        }
    };
    let mut is_complete = true;
    let stop = request.goal.search.stop;
    if stop.until().is_some() && request.instance.can_split() && request.goal.is_free() {
        let whole = request.unsplit().with_stop(stop.earlier(WHOLE_SHARE));
        let first = part_of_time(&whole, SEARCHES + 1);
        // Where no plan without splits meets the targets, one with splits may.
        if let Ok(candidate) = nearest(&first, None) {
            is_complete &= !first.goal.search.stop.is_requested();
            is_complete &= searched(&whole, candidate, &mut take).is_complete;
        }
    }
    let first = part_of_time(request, SEARCHES + 1);
    let candidate = nearest(&first, None)?;
    is_complete &= !first.goal.search.stop.is_requested();
    is_complete &= searched(request, candidate.clone(), &mut take).is_complete;
    if points.is_empty() {
        // None of the searches has met the targets: the nearest says by how much.
        met(request, candidate)?;
    }
    Ok(Front { points, is_complete })
}

/// `request` for the next of `left` searches, which share the time that is left.
fn part_of_time<'a>(request: &PlanRequest<'a>, left: usize) -> PlanRequest<'a> {
    request.with_stop(request.goal.search.stop.earlier(1.0 / left.max(1) as f64))
}

/// What [`searched`] has done.
struct Searched {
    /// Of plans that miss nothing.
    peaks: Vec<Bytes>,
    is_complete: bool,
}

/// The plans that the front is chosen from: `first`, the best for the other objectives, and under memory limits. `found`
/// is called with each, also with those that miss their limit or targets; the peaks of `first` and of the others, which
/// miss none, are returned.
fn searched(request: &PlanRequest<'_>, first: Candidate, mut found: impl FnMut(Point)) -> Searched {
    let first = Point::of(request, first);
    let (mut left, mut is_complete) = (SEARCHES, true);
    let mut search = |wanted: &PlanRequest<'_>| {
        let wanted = part_of_time(wanted, left);
        left = left.saturating_sub(1);
        let candidate = nearest(&wanted, None).ok();
        is_complete &= !wanted.goal.search.stop.is_requested();
        candidate
    };
    let mut peaks: Vec<Bytes> = first.iter().map(|point| point.peak).collect();
    first.into_iter().for_each(&mut found);
    let mut take = |peaks: &mut Vec<Bytes>, candidate: Option<Candidate>| {
        if let Some(point) = candidate.and_then(|candidate| Point::of(request, candidate)) {
            peaks.extend(point.is_met().then_some(point.peak));
            found(point);
        }
    };
    for objective in [Objective::Latency, Objective::Throughput, Objective::Memory] {
        if objective != request.goal.objective && !request.goal.search.stop.is_requested() {
            take(&mut peaks, search(&request.with_goal(Goal { objective, ..request.goal.clone() })));
        }
    }
    let range = || peaks.iter().map(|peak| peak.0 as f64);
    let (least, most) = (range().fold(f64::INFINITY, f64::min), range().fold(0.0, f64::max));
    let between = match request.goal.objective {
        Objective::Throughput => Objective::Throughput,
        Objective::Energy => Objective::Energy,
        Objective::Latency | Objective::Memory => Objective::Latency,
    };
    for step in 0..LIMITS {
        if request.goal.search.stop.is_requested() {
            break;
        }
        let limit = Bytes((least * (most / least.max(1.0)).powf(step as f64 / LIMITS as f64)) as u64);
        let mut tight = limited_to(&request.with_part(SEARCH_PART), limit);
        tight.goal.objective = between;
        take(&mut peaks, search(&tight));
    }
    is_complete &= !request.goal.search.stop.is_requested();
    Searched { peaks, is_complete }
}

/// `request` with at most `limit` of memory on each device.
fn limited_to<'a>(request: &PlanRequest<'a>, limit: Bytes) -> PlanRequest<'a> {
    let mut tight = request.clone();
    for device in &mut tight.instance_mut().network.devices {
        device.memory = Some(device.memory.map_or(limit, |memory| memory.min(limit)));
    }
    tight
}

/// The best plan for `request` within its limits on memory; if none keeps limits and targets, the nearest.
///
/// # Errors
/// If the tables contradict each other, or some group runs nowhere.
pub fn within(request: &PlanRequest<'_>) -> Result<Candidate, NoPlan> {
    let best = nearest_of(request.goal.objective, alternatives(request)?.candidates);
    best.map_or_else(|| nearest(request, None), Ok)
}

/// What [`alternatives`] finds.
#[derive(Debug, Default)]
pub(crate) struct Alternatives {
    pub candidates: Vec<Candidate>,
    /// Placements that were evaluated.
    pub evaluations: u64,
}

/// Plans for `request` among which the best one within its limits on memory is chosen, those that exceed them too.
///
/// If all devices have one and the same limit, the plans are those of the [`front`] without it: they do not depend on
/// the limit, so a looser one never gives a worse plan, and no plan is worse than a point of the front. Only if none of
/// them keeps within the limits, and where devices have limits of their own, is a plan made for just these limits. The
/// nearest of all that were found is among them, although without limits another one may be better in every figure.
///
/// # Errors
/// If the tables contradict each other, or some group runs nowhere.
pub(crate) fn alternatives(request: &PlanRequest<'_>) -> Result<Alternatives, NoPlan> {
    let alike = request.instance.has_equal_limits();
    if alike && request.instance.network.devices.first().is_none_or(|device| device.memory.is_none()) {
        let candidate = nearest(request, None)?;
        return Ok(Alternatives { evaluations: candidate.evaluations(), candidates: vec![candidate] });
    }
    let mut evaluations = 0;
    let mut free = request.clone();
    free.instance_mut().network.devices.iter_mut().for_each(|device| device.memory = None);
    let mut front: Vec<Point> = Vec::new();
    let mut closest: Option<Candidate> = None;
    let Searched { peaks, .. } = searched(&free, nearest(&free, None)?, |point| {
        evaluations += point.candidate.evaluations();
        let candidate = limited(request, point.candidate.clone());
        closest = nearest_of(request.goal.objective, closest.take().into_iter().chain(candidate));
        // The first stands for all if none meets the targets.
        if point.is_met() || front.is_empty() {
            add(&mut front, point);
        }
    });
    let least = peaks.into_iter().min().unwrap_or_default();
    let below = BELOW_LEAST.into_iter().filter_map(|factor| {
        let limit = Bytes((factor * least.0 as f64) as u64);
        nearest(&limited_to(&free.with_part(SEARCH_PART), limit), None).ok()
    });
    let below: Vec<Candidate> = below.collect();
    evaluations += below.iter().map(Candidate::evaluations).sum::<u64>();
    let undominated = front.into_iter().map(|point| point.candidate);
    let mut found: Vec<Candidate> =
        undominated.chain(below).filter_map(|candidate| limited(request, candidate)).collect();
    if !alike || found.iter().all(|candidate| !candidate.solution.missed.is_empty()) {
        let own = nearest(request, None)?;
        evaluations += own.evaluations();
        found.push(own);
    }
    found.extend(closest.filter(|closest| !found.iter().any(|candidate| candidate.is_same(closest))));
    Ok(Alternatives { candidates: found, evaluations })
}

/// The best of `candidates`, of equal ones the first: see [`Candidate::rank`].
pub(crate) fn nearest_of(objective: Objective, candidates: impl IntoIterator<Item = Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| candidate.rank(objective))
}

/// `candidate`, which was planned without limits and perhaps for another objective, as a candidate for `request`; `None`
/// if its memory does not fit in 63 bits.
fn limited(request: &PlanRequest<'_>, mut candidate: Candidate) -> Option<Candidate> {
    let (problem, solution) = (&mut candidate.expanded.problem, &mut candidate.solution);
    for (device, given) in problem.devices.iter_mut().zip(&request.instance.network.devices) {
        device.memory = given.memory;
    }
    let is_foreign = problem.objective != request.goal.objective;
    problem.objective = request.goal.objective;
    // As many inputs in flight as these limits have room for.
    if solution.in_flight.take().is_some() {
        solution.arenas = arenas(&solution.evaluation.memory).ok()?;
    }
    solution.stream(problem).ok()?;
    candidate.solution.evaluation.score.value = candidate.value(request.goal.objective);
    bound_by(request, &mut candidate).ok()?;
    if is_foreign {
        // The best plan without splits was found for another objective.
        candidate.whole = None;
    }
    Some(candidate)
}

/// Whether `candidate` is better than `other` by an objective: see [`Candidate::rank`].
pub fn is_better(objective: Objective, candidate: &Candidate, other: &Candidate) -> bool {
    candidate.rank(objective) < other.rank(objective)
}

impl Point {
    /// `None` if its memory does not fit in 63 bits.
    fn of(request: &PlanRequest<'_>, mut candidate: Candidate) -> Option<Point> {
        let is_stream = pipeline_depth::is_stream(request.goal.objective, &request.goal.targets);
        let (solution, problem) = (&mut candidate.solution, &candidate.expanded.problem);
        if is_stream && solution.in_flight.is_none() {
            // The plan for another objective serves one input at a time, and its memory is counted so.
            solution.fill(problem).ok()?;
            solution.judge(problem);
        }
        let evaluation = &candidate.solution.evaluation;
        let (_, interval) = candidate.solution.sustained(&candidate.expanded.problem).ok()?;
        let latency = evaluation.latency();
        let peak = candidate.solution.reserved().max().unwrap_or_default();
        Some(Point { candidate, latency, interval, peak, measured: None })
    }

    /// Whether it meets the limits and targets that it was made for.
    fn is_met(&self) -> bool {
        self.candidate.solution.missed.is_empty()
    }

    fn beats(&self, other: &Point) -> bool {
        self.latency.0 <= other.latency.0 && self.interval.0 <= other.interval.0 && self.peak <= other.peak
    }
}

/// Adds `point` to a front, the fastest first, in place of those that it dominates; not if one dominates it.
fn add(front: &mut Vec<Point>, point: Point) -> bool {
    if front.iter().any(|kept| kept.beats(&point)) {
        return false;
    }
    front.retain(|kept| !point.beats(kept));
    let rank = |point: &Point| (point.latency.0, point.peak);
    let at = front.partition_point(|kept| rank(kept) <= rank(&point));
    front.insert(at, point);
    true
}
