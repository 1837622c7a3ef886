//! Beam search over list schedules: groups are placed one after another in program order or by urgency, the
//! best few partial schedules are kept.
//!
//! A partial schedule is judged by a bound on what it can become: when each of its groups finishes plus the
//! shortest way from there to the end ([`Tails`]). On a chain without memory limits that is exact, so the first
//! schedule kept is the optimum; with memory limits and branches the width of the beam pays. Links serve in the
//! order of the list here, which is only nearly first come first served; the simulator has the last word.

use super::{Session, Whole};
use crate::plan::{
    DeviceId, GroupId, Problem, TensorIndex,
    bound::critical::Tails,
    problem::{LinkId, Objective},
};

/// Group placements that may be tried in one pass, which sets the width of the beam.
const TRIALS: usize = 1_500_000;
const WIDEST: usize = 64;

pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.objective == Objective::Throughput {
        // Equal loads are not made one group after another: that is for `pipeline`.
        return;
    }
    let tails = session.tails.clone();
    let per_step = problem.groups.len().max(1) * problem.devices.len();
    let width = (TRIALS / per_step).clamp(1, WIDEST);
    for order in session.orders.clone().iter() {
        for width in if width > 1 { vec![1, width] } else { vec![1] } {
            if session.is_over() {
                return;
            }
            let beam = Beam::new(problem, &tails, order);
            for devices in beam.run(width) {
                let _impossible_is_skipped = session.offer(&Whole { devices, order: order.clone() });
            }
        }
    }
}

struct Beam<'a> {
    problem: &'a Problem,
    tails: &'a Tails,
    order: &'a [GroupId],
    /// By group: its place in the order.
    place: Vec<u32>,
    /// By tensor: the place of its last reader.
    last_reader: Vec<u32>,
    /// By parameter: the groups that use it.
    users: Vec<Vec<GroupId>>,
}

/// A partial schedule.
#[derive(Clone)]
struct Partial {
    /// In the order of the list.
    devices: Vec<DeviceId>,
    device_free: Vec<f64>,
    link_free: Vec<f64>,
    /// By device: what it holds for good, what is live on it, and the most that was.
    standing: Vec<u64>,
    live: Vec<u64>,
    peak: Vec<u64>,
    /// Tensors that are still to be read: where they are and since when, the place of making first.
    there: Vec<Presence>,
    rating: Rating,
}

#[derive(Clone, Copy)]
struct Presence {
    tensor: TensorIndex,
    device: DeviceId,
    since: f64,
}

/// What partial schedules are compared by, the most important first.
#[derive(Clone, Copy, Default, PartialEq)]
struct Rating {
    /// Memory above the devices' limits, as fractions of those.
    excess: f64,
    /// A bound on the objective of every completion.
    bound: f64,
    /// When the last group finishes.
    finish: f64,
}

/// One more group on a partial schedule.
struct Step {
    parent: usize,
    device: DeviceId,
    rating: Rating,
    transfers: Vec<Move>,
    standing: u64,
    peak: u64,
}

/// A tensor that a step brings to its device.
struct Move {
    arrival: Presence,
    link: Option<LinkId>,
    bytes: u64,
}

impl Rating {
    fn total_cmp(&self, other: &Rating) -> std::cmp::Ordering {
        let first = self.excess.total_cmp(&other.excess).then(self.bound.total_cmp(&other.bound));
        first.then(self.finish.total_cmp(&other.finish))
    }
}

impl<'a> Beam<'a> {
    fn new(problem: &'a Problem, tails: &'a Tails, order: &'a [GroupId]) -> Beam<'a> {
        let mut place = vec![0; problem.groups.len()];
        let mut last_reader = vec![0; problem.tensors.len()];
        let mut users = vec![Vec::new(); problem.parameters.len()];
        for (at, group) in (0u32..).zip(order) {
            place[group.0 as usize] = at;
            for input in &problem.group(*group).inputs {
                last_reader[input.0 as usize] = at;
            }
            for parameter in &problem.group(*group).parameters {
                users[parameter.0 as usize].push(*group);
            }
        }
        Beam { problem, tails, order, place, last_reader, users }
    }

    /// The device of every group (by group id), for each schedule of the last beam, the best first.
    fn run(&self, width: usize) -> Vec<Vec<DeviceId>> {
        let mut beam = vec![self.start()];
        for &group in self.order {
            let mut steps: Vec<Step> = Vec::with_capacity(beam.len() * self.problem.devices.len());
            for (parent, partial) in beam.iter().enumerate() {
                steps.extend(self.problem.device_ids().filter_map(|d| self.step(parent, partial, group, d)));
            }
            steps.sort_by(|a, b| a.rating.total_cmp(&b.rating).then((a.parent, a.device).cmp(&(b.parent, b.device))));
            // Equal ratings on one device are mostly the same schedule with equal devices renamed.
            steps.dedup_by(|b, a| a.device == b.device && a.rating == b.rating && a.parent != b.parent);
            steps.truncate(width);
            beam = steps.into_iter().map(|step| self.apply(&beam[step.parent], group, step)).collect();
        }
        let by_group =
            |partial: Partial| self.place.iter().filter_map(|at| partial.devices.get(*at as usize).copied()).collect();
        beam.into_iter().map(by_group).collect()
    }

    fn start(&self) -> Partial {
        let problem = self.problem;
        let mut live = vec![0; problem.devices.len()];
        let mut there = Vec::new();
        for tensor in problem.tensor_ids().filter(|t| problem.tensor(*t).producer.is_none()) {
            live[problem.source.0 as usize] += problem.tensor(tensor).bytes.0;
            there.push(Presence { tensor, device: problem.source, since: 0.0 });
        }
        Partial {
            devices: Vec::with_capacity(self.order.len()),
            device_free: vec![0.0; problem.devices.len()],
            link_free: vec![0.0; problem.links.len()],
            standing: vec![0; problem.devices.len()],
            peak: live.clone(),
            live,
            there,
            rating: Rating::default(),
        }
    }

    /// What placing `group` on `device` next would do; `None` if it cannot run there.
    fn step(&self, parent: usize, partial: &Partial, group: GroupId, device: DeviceId) -> Option<Step> {
        let problem = self.problem;
        let (cost, at) = (problem.cost(group, device)?, device.0 as usize);
        let mut transfers: Vec<Move> = Vec::new();
        let mut start = partial.device_free[at];
        let mut live = partial.live[at];
        for &tensor in &problem.group(group).inputs {
            let mut places = partial.there.iter().filter(|p| p.tensor == tensor);
            let home = places.next()?;
            let arrived = std::iter::once(home).chain(places).find(|p| p.device == device).map(|p| p.since);
            let arrived = arrived.unwrap_or_else(|| {
                let bytes = problem.tensor(tensor).bytes;
                let link = problem.route(home.device, device);
                let since = link.map_or(home.since, |id| {
                    let queued = transfers.iter().rev().find(|m| m.link == Some(id)).map(|m| m.arrival.since);
                    let free = queued.unwrap_or(partial.link_free[id.0 as usize]);
                    home.since.max(free) + problem.link(id).time(bytes).0
                });
                transfers.push(Move { arrival: Presence { tensor, device, since }, link, bytes: bytes.0 });
                live += bytes.0;
                since
            });
            start = start.max(arrived);
        }
        let finish = start + cost.time.0;
        let outputs: u64 = problem
            .group(group)
            .outputs
            .iter()
            .filter(|t| problem.tensor(**t).view_of.is_none())
            .map(|t| problem.tensor(*t).bytes.0)
            .sum();
        let standing = partial.standing[at] + cost.held.0 + self.new_parameters(partial, group, device);
        let peak = partial.peak[at].max(live + outputs + cost.workspace.0);
        let over = |held: u64| {
            problem
                .device(device)
                .memory
                .map_or(0.0, |limit| held.saturating_sub(limit.0) as f64 / (limit.0 as f64).max(1.0))
        };
        let excess = partial.rating.excess - over(partial.standing[at] + partial.peak[at]) + over(standing + peak);
        let bound = match problem.objective {
            Objective::Memory => (standing + peak) as f64,
            _ => finish + self.tails.after(group, device),
        };
        let rating = Rating { excess, bound: partial.rating.bound.max(bound), finish };
        Some(Step { parent, device, rating, transfers, standing, peak })
    }

    /// Bytes of the parameters of `group` that `device` does not hold yet.
    fn new_parameters(&self, partial: &Partial, group: GroupId, device: DeviceId) -> u64 {
        let held = |user: &GroupId| partial.devices.get(self.place[user.0 as usize] as usize) == Some(&device);
        let new = |p: &&crate::plan::problem::ParameterId| {
            !self.users[p.0 as usize].iter().take_while(|u| **u != group).any(held)
        };
        self.problem.group(group).parameters.iter().filter(new).map(|p| self.problem.parameters[p.0 as usize].0).sum()
    }

    fn apply(&self, parent: &Partial, group: GroupId, step: Step) -> Partial {
        let problem = self.problem;
        let mut next = parent.clone();
        let (at, place) = (step.device.0 as usize, next.devices.len() as u32);
        next.devices.push(step.device);
        next.device_free[at] = step.rating.finish;
        next.standing[at] = step.standing;
        next.peak[at] = step.peak;
        next.rating = step.rating;
        for transfer in step.transfers {
            if let Some(link) = transfer.link {
                next.link_free[link.0 as usize] = transfer.arrival.since;
            }
            next.live[at] += transfer.bytes;
            next.there.push(transfer.arrival);
        }
        for &tensor in &problem.group(group).outputs {
            if problem.tensor(tensor).view_of.is_none() {
                next.live[at] += problem.tensor(tensor).bytes.0;
            }
            next.there.push(Presence { tensor, device: step.device, since: step.rating.finish });
        }
        let (there, live, last_reader) = (&mut next.there, &mut next.live, &self.last_reader);
        there.retain(|p| {
            let needed = last_reader[p.tensor.0 as usize] > place || problem.tensor(p.tensor).is_output;
            if !needed && problem.tensor(p.tensor).view_of.is_none() {
                let live = &mut live[p.device.0 as usize];
                *live = live.saturating_sub(problem.tensor(p.tensor).bytes.0);
            }
            needed
        });
        next
    }
}
