//! Branch and bound over all placements and orders, for small problems.
//!
//! Branching appends one group on one device to a list. Adjacent entries that are independent and on different devices
//! commute, so only the list with the lower group first is explored. A list is pruned when no completion can be better
//! than the incumbent: the relaxation runs devices in list order, transfers tensors on idle links, and completes the rest
//! by its tails ([`Tails`]; for energy those of [`EnergyTails`]).

use std::rc::Rc;

use super::session::Session;
use crate::{
    judge::bound::{critical_path::Tails, energy::EnergyTails},
    problem::{DeviceId, GroupId, Objective, Problem, placement::Placement},
};
use edgecut_graph::units::{Bytes, Joules, Micros};

/// Limit on the groups: beyond it the tree is too large despite pruning.
const MAX_GROUPS: usize = 24;
/// Limit on the explored branches, over the whole tree.
const MAX_BRANCHES: u64 = 400_000;

/// Explores the tree; if it is exhausted, the incumbent is proven optimal.
pub(super) fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.groups.len() > MAX_GROUPS || session.is_over() {
        return;
    }
    let reads = |g: GroupId| problem.group(g).inputs.iter().filter_map(|t| problem.tensor(*t).producer).collect();
    let limited = problem.devices.iter().any(|d| d.memory.is_some());
    let mut tree = Tree {
        problem,
        tails: session.tails.clone(),
        energy: session.energy_tails.clone(),
        above_least: Joules::ZERO,
        reads: problem.group_ids().map(reads).collect(),
        order_matters: problem.objective != Objective::Throughput || problem.targets.latency.is_some() || limited,
        placed: vec![None; problem.groups.len()],
        list: Vec::new(),
        loads: vec![DeviceLoad::default(); problem.devices.len()],
        branches: 0,
    };
    session.proven |= tree.descend(session, 0.0).is_ok();
}

/// The tree was not explored completely.
struct Incomplete;

struct Tree<'a> {
    problem: &'a Problem,
    tails: Rc<Tails>,
    /// Where energy is the objective.
    energy: Option<Rc<EnergyTails>>,
    /// What the groups in the list consume above their least; zero where energy is not the objective.
    above_least: Joules,
    reads: Vec<Vec<GroupId>>,
    order_matters: bool,
    /// By group in the list: its device, and a lower bound on its finish in microseconds.
    placed: Vec<Option<(DeviceId, f64)>>,
    list: Vec<GroupId>,
    loads: Vec<DeviceLoad>,
    branches: u64,
}

/// The load of a device from the groups in the list; times in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct DeviceLoad {
    /// When it becomes idle.
    free: f64,
    /// Sum of the groups' times.
    busy: f64,
    /// Parameters, and what the engine holds in addition.
    parameters: Bytes,
}

impl Tree<'_> {
    /// Explores all completions of the list, recursively to a depth of at most [`MAX_GROUPS`].
    fn descend(&mut self, session: &mut Session<'_>, bound: f64) -> Result<(), Incomplete> {
        if self.list.len() == self.placed.len() {
            let devices = self.placed.iter().flatten().map(|p| p.0).collect();
            let _impossible_is_skipped = session.offer(&Placement { devices, order: self.list.clone() });
            return Ok(());
        }
        let mut branches = Vec::new();
        for group in self.ready() {
            for device in self.problem.device_ids().filter(|d| self.is_canonical(group, *d)) {
                branches.extend(
                    self.relax(group, device)
                        .map(|(value, load, finish)| (value.max(bound), group, device, load, finish)),
                );
            }
        }
        branches.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        for (bound, group, device, load, finish) in branches {
            self.branches += 1;
            if self.branches > MAX_BRANCHES || session.is_over() {
                return Err(Incomplete);
            }
            if session.best.as_ref().is_some_and(|(best, _)| best.feasible() && bound >= best.value) {
                continue;
            }
            let before = std::mem::replace(&mut self.loads[device.0 as usize], load);
            let consumed = self.consumed(group, device);
            let consumed = std::mem::replace(&mut self.above_least, consumed);
            self.placed[group.0 as usize] = Some((device, finish));
            self.list.push(group);
            let outcome = self.descend(session, bound);
            self.list.pop();
            self.placed[group.0 as usize] = None;
            self.loads[device.0 as usize] = before;
            self.above_least = consumed;
            outcome?;
        }
        Ok(())
    }

    /// The groups whose predecessors are all in the list; just the first one if order does not matter.
    fn ready(&self) -> Vec<GroupId> {
        let open = |g: &GroupId| self.placed[g.0 as usize].is_none();
        let read = |g: &GroupId| self.reads[g.0 as usize].iter().all(|r| self.placed[r.0 as usize].is_some());
        let next = self.problem.group_ids().filter(open).filter(read);
        if self.order_matters { next.collect() } else { next.take(1).collect() }
    }

    /// Whether `group` may follow the last entry: they do not commute, or are in ascending order.
    fn is_canonical(&self, group: GroupId, device: DeviceId) -> bool {
        let Some(&last) = self.list.last() else { return true };
        let same_device = self.placed[last.0 as usize].is_some_and(|(at, _)| at == device);
        last < group || same_device || self.reads[group.0 as usize].contains(&last)
    }

    /// A lower bound on the objective's value over all completions with `group` on `device`, the device's load after
    /// it, and the finish of `group` in microseconds; `None` if no completion meets the limits and targets.
    fn relax(&self, group: GroupId, device: DeviceId) -> Option<(f64, DeviceLoad, f64)> {
        let problem = self.problem;
        let cost = problem.cost(group, device)?;
        let mut load = self.loads[device.0 as usize];
        let arrivals = problem.group(group).inputs.iter().map(|t| {
            let tensor = problem.tensor(*t);
            let (from, produced) =
                tensor.producer.map_or(Some((problem.source, 0.0)), |p| self.placed[p.0 as usize])?;
            Some(produced + problem.route(from, device).map_or(0.0, |link| problem.link(link).time(tensor).0))
        });
        let start = arrivals.collect::<Option<Vec<f64>>>()?.into_iter().fold(load.free, f64::max);
        let finish = start + cost.time.0;
        let latency = finish + self.tails.group(group, device);
        load.free = finish;
        load.busy += cost.time.0;
        load.parameters += cost.held + self.new_parameters(group, device);
        let slack = 1.0 + 1e-9;
        let late = problem.targets.latency.is_some_and(|target| latency > target.0 * slack);
        let slow = problem.targets.throughput.is_some_and(|rate| load.busy * rate / 1e6 > slack);
        let full = problem.device(device).memory.is_some_and(|limit| load.parameters > limit);
        let value = match problem.objective {
            Objective::Latency => latency,
            Objective::Throughput => load.busy,
            Objective::Memory => load.parameters.0 as f64,
            Objective::Energy => {
                let bound = |energy: &Rc<EnergyTails>| {
                    energy.bound(group, device, Micros(finish), self.consumed(group, device)).0
                };
                self.energy.as_ref().map_or(0.0, bound)
            }
        };
        (!late && !slow && !full).then_some((value, load, finish))
    }

    /// What the groups in the list and `group` on `device` consume above their least.
    fn consumed(&self, group: GroupId, device: DeviceId) -> Joules {
        let cost = self.problem.cost(group, device).unwrap_or_default();
        let above = self.energy.as_ref().map(|energy| energy.above_least(group, cost.energy_above_idle()));
        self.above_least + above.unwrap_or_default()
    }

    /// Bytes of the parameters of `group` that `device` does not hold yet.
    fn new_parameters(&self, group: GroupId, device: DeviceId) -> Bytes {
        let here = |g: &&GroupId| self.placed[g.0 as usize].is_some_and(|(at, _)| at == device);
        let held: Vec<_> = self.list.iter().filter(here).flat_map(|g| &self.problem.group(*g).parameters).collect();
        let new = self.problem.group(group).parameters.iter().filter(|p| !held.contains(p));
        new.map(|p| self.problem.parameters[p.0 as usize]).sum()
    }
}
