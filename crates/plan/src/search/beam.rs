//! Beam search over list schedules: groups are placed one after another in a fixed topological order, and the best partial
//! schedules are kept.
//!
//! A partial schedule is rated by a lower bound on its completions: the finish of each placed group plus its tail
//! ([`Tails`]). On a chain without memory limits the rating is exact, so width 1 finds the optimum; with memory limits and
//! branches a wider beam pays. For energy the bound is that of [`EnergyTails`]. Links serve requests in list order here,
//! which only approximates first come first served; the final score comes from the simulator.

use super::session::Session;
use crate::{
    judge::{
        bound::{critical_path::Tails, energy::EnergyTails},
        rank::Rank,
    },
    problem::{DeviceId, GroupId, LinkId, Objective, ParameterId, Problem, TensorIndex, placement::Placement},
};
use edgecut_graph::units::{Bytes, Joules, Micros};

/// Limit on the extensions that one pass evaluates; it determines the beam width.
const MAX_EXTENSIONS: usize = 1_500_000;
const MAX_WIDTH: usize = 64;

/// Searches with width 1 and with the full width, in each order of the session.
pub(super) fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.objective == Objective::Throughput {
        // List scheduling does not balance loads; `chain_partition` does.
        return;
    }
    let (tails, energy) = (session.tails.clone(), session.energy_tails.clone());
    let per_step = problem.groups.len().max(1) * problem.devices.len();
    let width = (MAX_EXTENSIONS / per_step).clamp(1, MAX_WIDTH);
    for order in session.orders.clone().iter() {
        for width in if width > 1 { vec![1, width] } else { vec![1] } {
            if session.is_over() {
                return;
            }
            let beam = Beam::new(problem, &tails, energy.as_deref(), order);
            for devices in beam.run(width) {
                let _impossible_is_skipped = session.offer(&Placement { devices, order: order.clone() });
            }
        }
    }
}

struct Beam<'a> {
    problem: &'a Problem,
    tails: &'a Tails,
    /// Where energy is the objective.
    energy: Option<&'a EnergyTails>,
    order: &'a [GroupId],
    /// By group: its position in the order.
    position: Vec<u32>,
    /// By tensor: the position of its last reader.
    last_reader: Vec<u32>,
    /// By parameter: the groups that use it.
    users: Vec<Vec<GroupId>>,
}

/// A schedule of a prefix of the order.
#[derive(Clone)]
struct PartialSchedule {
    /// By position in the order.
    devices: Vec<DeviceId>,
    device_free: Vec<f64>,
    link_free: Vec<f64>,
    /// By device: parameters, live tensors, and the peak of live tensors and workspace.
    parameters: Vec<Bytes>,
    live: Vec<Bytes>,
    peak: Vec<Bytes>,
    /// Replicas of tensors that are still to be read, the produced one of each tensor first.
    replicas: Vec<Presence>,
    /// What the placed groups consume above their least; zero where energy is not the objective.
    above_least: Joules,
    rating: Rating,
}

/// A tensor on a device.
#[derive(Clone, Copy)]
struct Presence {
    tensor: TensorIndex,
    device: DeviceId,
    since: f64,
}

/// The rating of a partial schedule, most significant first.
#[derive(Clone, Copy, Default, PartialEq)]
struct Rating {
    /// Sum of the relative excesses over memory limits.
    excess: f64,
    /// Lower bound on the objective of all completions.
    bound: f64,
    /// The finish of the last group.
    finish: f64,
}

/// A partial schedule extended by one group.
struct Extension {
    parent: usize,
    device: DeviceId,
    rating: Rating,
    transfers: Vec<Arrival>,
    parameters: Bytes,
    peak: Bytes,
    above_least: Joules,
}

/// A tensor sent to the device of an extension.
struct Arrival {
    presence: Presence,
    link: Option<LinkId>,
    bytes: Bytes,
}

impl Rating {
    fn rank(&self) -> Rank {
        Rank::new(self.excess, self.bound).with_tie(self.finish)
    }
}

impl<'a> Beam<'a> {
    fn new(problem: &'a Problem, tails: &'a Tails, energy: Option<&'a EnergyTails>, order: &'a [GroupId]) -> Beam<'a> {
        let mut position = vec![0; problem.groups.len()];
        let mut last_reader = vec![0; problem.tensors.len()];
        let mut users = vec![Vec::new(); problem.parameters.len()];
        for (at, group) in (0u32..).zip(order) {
            position[group.0 as usize] = at;
            for input in &problem.group(*group).inputs {
                last_reader[input.0 as usize] = at;
            }
            for parameter in &problem.group(*group).parameters {
                users[parameter.0 as usize].push(*group);
            }
        }
        Beam { problem, tails, energy, order, position, last_reader, users }
    }

    /// The devices by group id of each schedule in the final beam, best first.
    fn run(&self, width: usize) -> Vec<Vec<DeviceId>> {
        let mut beam = vec![self.start()];
        for &group in self.order {
            let mut extensions: Vec<Extension> = Vec::with_capacity(beam.len() * self.problem.devices.len());
            for (parent, partial) in beam.iter().enumerate() {
                extensions.extend(self.problem.device_ids().filter_map(|d| self.extend(parent, partial, group, d)));
            }
            extensions.sort_by(|a, b| {
                a.rating.rank().cmp(&b.rating.rank()).then((a.parent, a.device).cmp(&(b.parent, b.device)))
            });
            // Equal ratings on one device are mostly the same schedule up to a renaming of equal devices.
            extensions.dedup_by(|b, a| a.device == b.device && a.rating == b.rating && a.parent != b.parent);
            extensions.truncate(width);
            beam = extensions.into_iter().map(|e| self.apply(&beam[e.parent], group, e)).collect();
        }
        let by_group = |partial: PartialSchedule| {
            self.position.iter().filter_map(|at| partial.devices.get(*at as usize).copied()).collect()
        };
        beam.into_iter().map(by_group).collect()
    }

    fn start(&self) -> PartialSchedule {
        let problem = self.problem;
        let mut live = vec![Bytes::ZERO; problem.devices.len()];
        let mut replicas = Vec::new();
        for tensor in problem.tensor_ids().filter(|t| problem.tensor(*t).producer.is_none()) {
            live[problem.source.0 as usize] += problem.tensor(tensor).bytes;
            replicas.push(Presence { tensor, device: problem.source, since: 0.0 });
        }
        PartialSchedule {
            devices: Vec::with_capacity(self.order.len()),
            device_free: vec![0.0; problem.devices.len()],
            link_free: vec![0.0; problem.links.len()],
            parameters: vec![Bytes::ZERO; problem.devices.len()],
            peak: live.clone(),
            live,
            replicas,
            above_least: Joules::ZERO,
            rating: Rating::default(),
        }
    }

    /// The extension of `partial` by `group` on `device`; `None` if the group cannot run there.
    fn extend(&self, parent: usize, partial: &PartialSchedule, group: GroupId, device: DeviceId) -> Option<Extension> {
        let problem = self.problem;
        let (cost, at) = (problem.cost(group, device)?, device.0 as usize);
        let mut transfers: Vec<Arrival> = Vec::new();
        let mut start = partial.device_free[at];
        let mut live = partial.live[at];
        for &tensor in &problem.group(group).inputs {
            let mut replicas = partial.replicas.iter().filter(|p| p.tensor == tensor);
            let home = replicas.next()?;
            let arrived = std::iter::once(home).chain(replicas).find(|p| p.device == device).map(|p| p.since);
            let arrived = arrived.unwrap_or_else(|| {
                let bytes = problem.tensor(tensor).bytes;
                let link = problem.route(home.device, device);
                let since = link.map_or(home.since, |id| {
                    let queued = transfers.iter().rev().find(|t| t.link == Some(id)).map(|t| t.presence.since);
                    let free = queued.unwrap_or(partial.link_free[id.0 as usize]);
                    home.since.max(free) + problem.link(id).time(problem.tensor(tensor)).0
                });
                transfers.push(Arrival { presence: Presence { tensor, device, since }, link, bytes });
                live += bytes;
                since
            });
            start = start.max(arrived);
        }
        let finish = start + cost.time.0;
        let outputs = problem.group(group).outputs.iter().map(|t| problem.tensor(*t));
        let outputs: Bytes = outputs.filter(|t| t.view_of.is_none()).map(|t| t.bytes).sum();
        let parameters = partial.parameters[at] + cost.held + self.new_parameters(partial, group, device);
        let peak = partial.peak[at].max(live + outputs + cost.workspace);
        let excess = |used: Bytes| {
            let limit = problem.device(device).memory;
            limit.map_or(0.0, |limit| limit.shortfall(used).0 as f64 / (limit.0 as f64).max(1.0))
        };
        let excess =
            partial.rating.excess - excess(partial.parameters[at] + partial.peak[at]) + excess(parameters + peak);
        let mut above_least = partial.above_least;
        let bound = match (problem.objective, self.energy) {
            (Objective::Memory, _) => (parameters + peak).0 as f64,
            (_, Some(energy)) => {
                above_least = above_least + energy.above_least(group, cost.energy_above_idle());
                energy.bound(group, device, Micros(finish), above_least).0
            }
            _ => finish + self.tails.group(group, device),
        };
        let rating = Rating { excess, bound: partial.rating.bound.max(bound), finish };
        Some(Extension { parent, device, rating, transfers, parameters, peak, above_least })
    }

    /// Bytes of the parameters of `group` that `device` does not hold yet.
    fn new_parameters(&self, partial: &PartialSchedule, group: GroupId, device: DeviceId) -> Bytes {
        let holds = |user: &GroupId| partial.devices.get(self.position[user.0 as usize] as usize) == Some(&device);
        let is_new = |p: &&ParameterId| !self.users[p.0 as usize].iter().take_while(|u| **u != group).any(holds);
        let new = self.problem.group(group).parameters.iter().filter(is_new);
        new.map(|p| self.problem.parameters[p.0 as usize]).sum()
    }

    fn apply(&self, parent: &PartialSchedule, group: GroupId, extension: Extension) -> PartialSchedule {
        let problem = self.problem;
        let mut next = parent.clone();
        let (at, position) = (extension.device.0 as usize, next.devices.len() as u32);
        next.devices.push(extension.device);
        next.device_free[at] = extension.rating.finish;
        next.parameters[at] = extension.parameters;
        next.peak[at] = extension.peak;
        next.rating = extension.rating;
        next.above_least = extension.above_least;
        for transfer in extension.transfers {
            if let Some(link) = transfer.link {
                next.link_free[link.0 as usize] = transfer.presence.since;
            }
            next.live[at] += transfer.bytes;
            next.replicas.push(transfer.presence);
        }
        for &tensor in &problem.group(group).outputs {
            if problem.tensor(tensor).view_of.is_none() {
                next.live[at] += problem.tensor(tensor).bytes;
            }
            next.replicas.push(Presence { tensor, device: extension.device, since: extension.rating.finish });
        }
        let (replicas, live, last_reader) = (&mut next.replicas, &mut next.live, &self.last_reader);
        replicas.retain(|p| {
            let needed = last_reader[p.tensor.0 as usize] > position || problem.tensor(p.tensor).is_output;
            if !needed && problem.tensor(p.tensor).view_of.is_none() {
                let live = &mut live[p.device.0 as usize];
                *live = *live - problem.tensor(p.tensor).bytes;
            }
            needed
        });
        next
    }
}
