//! Branch and bound over every whole placement and every order, for small problems.
//!
//! Groups are appended one by one, each on some device. Two neighbours of the list that neither depend on each
//! other nor share a device may be exchanged without changing anything, so only the list with the lower group
//! first is followed. Lists are cut off when no completion can be better than the best so far: devices run
//! their list, tensors move as if links were never busy, the rest takes its shortest way ([`Tails`]).

use std::rc::Rc;

use super::{Session, Whole};
use crate::plan::{DeviceId, GroupId, Problem, bound::critical::Tails, problem::Objective};

/// More groups than this are not tried: the lists are too many whatever is cut off.
const MOST_GROUPS: usize = 24;
/// Lists that are looked at before giving up.
const MOST_LISTS: u64 = 400_000;

pub fn search(session: &mut Session<'_>) {
    let problem = session.problem;
    if problem.groups.len() > MOST_GROUPS || session.is_over() {
        return;
    }
    let reads = |g: GroupId| problem.group(g).inputs.iter().filter_map(|t| problem.tensor(*t).producer).collect();
    let limited = problem.devices.iter().any(|d| d.memory.is_some());
    let mut tree = Tree {
        problem,
        tails: session.tails.clone(),
        reads: problem.group_ids().map(reads).collect(),
        order_matters: problem.objective != Objective::Throughput || problem.targets.latency.is_some() || limited,
        placed: vec![None; problem.groups.len()],
        list: Vec::new(),
        loads: vec![Load::default(); problem.devices.len()],
        lists: 0,
    };
    session.proven |= tree.descend(session, 0.0).is_ok();
}

/// The search ended before it had seen everything.
struct GaveUp;

struct Tree<'a> {
    problem: &'a Problem,
    tails: Rc<Tails>,
    reads: Vec<Vec<GroupId>>,
    order_matters: bool,
    /// By group: its device and its earliest finish.
    placed: Vec<Option<(DeviceId, f64)>>,
    list: Vec<GroupId>,
    loads: Vec<Load>,
    lists: u64,
}

/// What the list gives one device.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// When it is free again.
    free: f64,
    busy: f64,
    /// Parameters and what is held beside them.
    standing: u64,
}

impl Tree<'_> {
    /// Tries every completion of the list. Goes at most [`MOST_GROUPS`] deep.
    fn descend(&mut self, session: &mut Session<'_>, bound: f64) -> Result<(), GaveUp> {
        if self.list.len() == self.placed.len() {
            let devices = self.placed.iter().flatten().map(|p| p.0).collect();
            let _impossible_is_skipped = session.offer(&Whole { devices, order: self.list.clone() });
            return Ok(());
        }
        let mut branches = Vec::new();
        for group in self.candidates() {
            for device in self.problem.device_ids().filter(|d| self.in_normal_form(group, *d)) {
                branches.extend(
                    self.rate(group, device)
                        .map(|(rating, load, finish)| (rating.max(bound), group, device, load, finish)),
                );
            }
        }
        branches.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        for (bound, group, device, load, finish) in branches {
            self.lists += 1;
            if self.lists > MOST_LISTS || session.is_over() {
                return Err(GaveUp);
            }
            if session.best.as_ref().is_some_and(|(best, _)| best.feasible() && bound >= best.value) {
                continue;
            }
            let before = std::mem::replace(&mut self.loads[device.0 as usize], load);
            self.placed[group.0 as usize] = Some((device, finish));
            self.list.push(group);
            let outcome = self.descend(session, bound);
            self.list.pop();
            self.placed[group.0 as usize] = None;
            self.loads[device.0 as usize] = before;
            outcome?;
        }
        Ok(())
    }

    /// The groups that may come next.
    fn candidates(&self) -> Vec<GroupId> {
        let open = |g: &GroupId| self.placed[g.0 as usize].is_none();
        let read = |g: &GroupId| self.reads[g.0 as usize].iter().all(|r| self.placed[r.0 as usize].is_some());
        let next = self.problem.group_ids().filter(open).filter(read);
        if self.order_matters { next.collect() } else { next.take(1).collect() }
    }

    /// Whether exchanging `group` with the list's last group would change something or make the list greater.
    fn in_normal_form(&self, group: GroupId, device: DeviceId) -> bool {
        let Some(&last) = self.list.last() else { return true };
        let shares = self.placed[last.0 as usize].is_some_and(|(at, _)| at == device);
        last < group || shares || self.reads[group.0 as usize].contains(&last)
    }

    /// A bound on every completion once `group` is on `device`, and what that gives the device; `None` if no
    /// completion meets the limits.
    fn rate(&self, group: GroupId, device: DeviceId) -> Option<(f64, Load, f64)> {
        let problem = self.problem;
        let cost = problem.cost(group, device)?;
        let mut load = self.loads[device.0 as usize];
        let arrivals = problem.group(group).inputs.iter().map(|t| {
            let tensor = problem.tensor(*t);
            let (from, made) = tensor.producer.map_or(Some((problem.source, 0.0)), |p| self.placed[p.0 as usize])?;
            Some(made + problem.route(from, device).map_or(0.0, |link| problem.link(link).time(tensor.bytes).0))
        });
        let start = arrivals.collect::<Option<Vec<f64>>>()?.into_iter().fold(load.free, f64::max);
        let finish = start + cost.time.0;
        let latency = finish + self.tails.after(group, device);
        load.free = finish;
        load.busy += cost.time.0;
        load.standing += cost.held.0 + self.new_parameters(group, device);
        let slack = 1.0 + 1e-9;
        let late = problem.targets.latency.is_some_and(|target| latency > target.0 * slack);
        let slow = problem.targets.throughput.is_some_and(|rate| load.busy * rate / 1e6 > slack);
        let full = problem.device(device).memory.is_some_and(|limit| load.standing > limit.0);
        let rating = match problem.objective {
            Objective::Latency => latency,
            Objective::Throughput => load.busy,
            Objective::Memory => load.standing as f64,
        };
        (!late && !slow && !full).then_some((rating, load, finish))
    }

    /// Bytes of the parameters of `group` that `device` does not hold yet.
    fn new_parameters(&self, group: GroupId, device: DeviceId) -> u64 {
        let here = |g: &&GroupId| self.placed[g.0 as usize].is_some_and(|(at, _)| at == device);
        let held: Vec<_> = self.list.iter().filter(here).flat_map(|g| &self.problem.group(*g).parameters).collect();
        let new = self.problem.group(group).parameters.iter().filter(|p| !held.contains(p));
        new.map(|p| self.problem.parameters[p.0 as usize].0).sum()
    }
}
