//! Judges a plan from the problem and the plan alone. Shares no code with the searches, the simulator or the account.
//!
//! A plan is right if
//! - every group is on one device that can compute it, and in that device's order;
//! - a group starts exactly when its device is free and all it reads is there, neither earlier nor later;
//! - there is one transfer for every tensor and device that reads it without having made it, and for every result
//!   that is not made on the sink; it takes what its link takes for its bytes;
//! - each link carries one transfer at a time, first come first served, and never waits with one at hand;
//! - latency, time between results (with the inputs under way) and memory are what follows from those times;
//! - limits and targets are met, and the bound is not above the value.
//!
//! Times that follow from each other are compared to a relative 10⁻⁹, everything else exactly.

use std::collections::{BTreeMap, HashMap, HashSet};

use wildmatch::WildMatch;

use super::{
    GroupId, Plan, Problem, Strategy, TensorIndex,
    file::{DevicePlan, Transfer},
    problem::Objective,
    rule,
};
use crate::units::Bytes;

/// What is wrong with a plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Flaw {
    #[error("the plan has {found} {what}, the problem {expected}")]
    Count { what: &'static str, found: usize, expected: usize },
    #[error("group {0} is placed on a device that cannot compute it, or in no order or several")]
    Misplaced(String),
    #[error("group {group} starts at {stated} us, by the plan's own order it starts at {real} us")]
    Start { group: String, stated: f64, real: f64 },
    #[error("group {group} reads tensor {tensor}, which never comes to its device")]
    Absent { group: String, tensor: String },
    #[error("the transfer of {0} is needed by nobody, there twice, or from a device that does not have it")]
    Transfer(String),
    #[error("the transfer of {name}: {what} is {stated}, {real} follows from the rest")]
    TransferFigure { name: String, what: &'static str, stated: f64, real: f64 },
    #[error("the link {link} serves {later} before {earlier}, which was asked for first")]
    Overtaken { link: String, earlier: String, later: String },
    #[error("{what} is stated as {stated}, {real} follows from the plan")]
    Figure { what: String, stated: f64, real: f64 },
    #[error("{0} is missed")]
    Target(String),
    #[error("group {group} is on {device}, against `{rule}`")]
    Rule { group: String, device: String, rule: String },
}

/// Checks `plan` against `problem`.
///
/// # Errors
/// With the first flaw that is found.
pub fn plan(problem: &Problem, plan: &Plan) -> Result<(), Flaw> {
    let checker = Checker::new(problem, plan)?;
    let arrivals = checker.transfers()?;
    checker.starts(&arrivals)?;
    checker.links()?;
    checker.figures()?;
    checker.memory(&arrivals)?;
    checker.targets()
}

/// Checks that no group breaks a rule of `plan`. `names` has for each of its groups what the model calls that group, or the
/// one that it is a part of; `None` for slices and joins, which belong to none.
///
/// # Errors
/// With the first group that breaks one.
pub fn rules(plan: &Plan, names: &[Option<&str>]) -> Result<(), Flaw> {
    let (found, expected) = (names.len(), plan.groups.len());
    if found != expected {
        return Err(Flaw::Count { what: "names of groups", found, expected });
    }
    for rule in &plan.rules {
        let pattern = WildMatch::new(&rule.groups);
        for (group, name) in plan.groups.iter().zip(names) {
            let is_meant =
                name.is_some_and(|name| std::iter::once(name).chain(name.split('+')).any(|name| pattern.matches(name)));
            for device in group.strategy.devices().filter(|_| is_meant) {
                let at = plan.devices.get(device.0 as usize).map(DevicePlan::full_name);
                let on_it = at.as_deref() == Some(rule.device.as_str());
                if on_it != (rule.kind == rule::Kind::Pin) {
                    let (group, device) = (group.name.clone(), at.unwrap_or_default());
                    return Err(Flaw::Rule { group, device, rule: rule.to_string() });
                }
            }
        }
    }
    Ok(())
}

struct Checker<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    /// By group.
    homes: Vec<usize>,
    /// By tensor: the groups that read it.
    readers: Vec<Vec<usize>>,
}

/// When each tensor is on each device, beside where it is made, and when its transfer began.
type Arrivals = HashMap<(usize, usize), (f64, f64)>;

impl<'a> Checker<'a> {
    fn new(problem: &'a Problem, plan: &'a Plan) -> Result<Checker<'a>, Flaw> {
        let counts = [
            ("groups", plan.groups.len(), problem.groups.len()),
            ("devices", plan.devices.len(), problem.devices.len()),
        ];
        for (what, found, expected) in counts {
            if found != expected {
                return Err(Flaw::Count { what, found, expected });
            }
        }
        let mut listed = vec![Vec::new(); plan.groups.len()];
        for (device, entry) in plan.devices.iter().enumerate() {
            for group in &entry.order {
                match listed.get_mut(group.0 as usize) {
                    Some(places) => places.push(device),
                    None => return Err(Flaw::Misplaced(group.0.to_string())),
                }
            }
        }
        let mut homes = Vec::new();
        for (index, (group, places)) in plan.groups.iter().zip(&listed).enumerate() {
            let Strategy::Whole { device } = group.strategy;
            let able = problem.groups[index].costs.get(device.0 as usize).is_some_and(|c| c.is_some());
            if !able || *places != [device.0 as usize] {
                return Err(Flaw::Misplaced(group.name.clone()));
            }
            homes.push(device.0 as usize);
        }
        let mut readers = vec![Vec::new(); problem.tensors.len()];
        for (index, group) in problem.groups.iter().enumerate() {
            group.inputs.iter().for_each(|t| readers[t.0 as usize].push(index));
        }
        Ok(Checker { problem, plan, homes, readers })
    }

    fn home(&self, tensor: usize) -> usize {
        let producer = self.problem.tensors[tensor].producer;
        producer.map_or(self.problem.source.0 as usize, |p| self.homes[p.0 as usize])
    }

    /// When a tensor can be read where it is made.
    fn made(&self, tensor: usize) -> f64 {
        let producer = self.problem.tensors[tensor].producer;
        producer.map_or(0.0, |p| self.finish(p))
    }

    fn finish(&self, group: GroupId) -> f64 {
        let group = &self.plan.groups[group.0 as usize];
        group.start_us.0 + group.time_us.0
    }

    /// One transfer for each need, with the right ends, bytes and duration.
    fn transfers(&self) -> Result<Arrivals, Flaw> {
        let by_id: HashMap<_, usize> = self.problem.tensors.iter().enumerate().map(|(i, t)| (t.graph, i)).collect();
        let mut needed = HashSet::new();
        for (tensor, readers) in self.readers.iter().enumerate() {
            let mut wanted: HashSet<usize> = readers.iter().map(|g| self.homes[*g]).collect();
            if self.problem.tensors[tensor].is_output {
                wanted.insert(self.problem.sink.0 as usize);
            }
            wanted.remove(&self.home(tensor));
            needed.extend(wanted.into_iter().map(|device| (tensor, device)));
        }
        let mut arrivals = Arrivals::new();
        for transfer in &self.plan.transfers {
            let wrong = || Flaw::Transfer(transfer.name.clone());
            let tensor = *by_id.get(&transfer.tensor).ok_or_else(wrong)?;
            let to = transfer.to.0 as usize;
            if !needed.remove(&(tensor, to)) || transfer.from.0 as usize != self.home(tensor) {
                return Err(wrong());
            }
            let figure = |what, stated: f64, real: f64| match close(stated, real) {
                true => Ok(()),
                false => Err(Flaw::TransferFigure { name: transfer.name.clone(), what, stated, real }),
            };
            let bytes = self.problem.tensors[tensor].bytes;
            figure("size", transfer.bytes.0 as f64, bytes.0 as f64)?;
            let line = self.line(transfer).map(|line| &self.problem.links[line]);
            figure("time", transfer.time_us.0, line.map_or(0.0, |l| l.latency.0 + bytes.0 as f64 * l.per_byte))?;
            arrivals.insert((tensor, to), (transfer.start_us.0, transfer.start_us.0 + transfer.time_us.0));
        }
        match needed.into_iter().next() {
            Some((tensor, _)) => {
                let tensor = &self.problem.tensors[tensor];
                Err(Flaw::Absent { group: "the result or a reader".into(), tensor: tensor.name.clone() })
            }
            None => Ok(arrivals),
        }
    }

    fn line(&self, transfer: &Transfer) -> Option<usize> {
        let at = transfer.from.0 as usize * self.problem.devices.len() + transfer.to.0 as usize;
        self.problem.routes[at].map(|link| link.0 as usize)
    }

    /// Every group starts when its device and its operands let it.
    fn starts(&self, arrivals: &Arrivals) -> Result<(), Flaw> {
        for (device, entry) in self.plan.devices.iter().enumerate() {
            let mut free = 0.0;
            for id in &entry.order {
                let group = &self.plan.groups[id.0 as usize];
                let mut real: f64 = free;
                for input in &self.problem.groups[id.0 as usize].inputs {
                    let tensor = input.0 as usize;
                    let there = if self.home(tensor) == device {
                        Some(self.made(tensor))
                    } else {
                        arrivals.get(&(tensor, device)).map(|a| a.1)
                    };
                    let name = || self.problem.tensors[tensor].name.clone();
                    real = real.max(there.ok_or_else(|| Flaw::Absent { group: group.name.clone(), tensor: name() })?);
                }
                if !close(group.start_us.0, real) {
                    return Err(Flaw::Start { group: group.name.clone(), stated: group.start_us.0, real });
                }
                let cost = self.problem.groups[id.0 as usize].costs[device].unwrap_or_default();
                figure(format!("the time of {}", group.name), group.time_us.0, cost.time.0)?;
                free = group.start_us.0 + group.time_us.0;
            }
        }
        Ok(())
    }

    /// Each link serves first come first served, one at a time, and without waiting.
    fn links(&self) -> Result<(), Flaw> {
        let by_id: HashMap<_, usize> = self.problem.tensors.iter().enumerate().map(|(i, t)| (t.graph, i)).collect();
        let mut served: BTreeMap<usize, Vec<(f64, &Transfer)>> = BTreeMap::new();
        for transfer in &self.plan.transfers {
            let asked = by_id.get(&transfer.tensor).map_or(0.0, |t| self.made(*t));
            match self.line(transfer) {
                Some(link) => served.entry(link).or_default().push((asked, transfer)),
                None => figure(format!("the start of the transfer of {}", transfer.name), transfer.start_us.0, asked)?,
            }
        }
        for (link, mut queue) in served {
            queue.sort_by(|a, b| {
                a.1.start_us.0.total_cmp(&b.1.start_us.0).then(a.1.time_us.0.total_cmp(&b.1.time_us.0))
            });
            let (mut free, mut before): (f64, Option<(f64, &Transfer)>) = (0.0, None);
            for (asked, transfer) in queue {
                if let Some((earlier_asked, earlier)) = before
                    && asked < earlier_asked
                    && !close(asked, earlier_asked)
                {
                    let link = self.problem.links[link].name.clone();
                    return Err(Flaw::Overtaken { link, earlier: transfer.name.clone(), later: earlier.name.clone() });
                }
                let real = asked.max(free);
                if !close(transfer.start_us.0, real) {
                    let what = "start";
                    return Err(Flaw::TransferFigure {
                        name: transfer.name.clone(),
                        what,
                        stated: transfer.start_us.0,
                        real,
                    });
                }
                free = transfer.start_us.0 + transfer.time_us.0;
                before = Some((asked, transfer));
            }
        }
        Ok(())
    }

    /// Latency and loads.
    fn figures(&self) -> Result<(), Flaw> {
        let predicted = &self.plan.predicted;
        let groups = self.plan.groups.iter().map(|g| g.start_us.0 + g.time_us.0);
        let moves = self.plan.transfers.iter().map(|t| t.start_us.0 + t.time_us.0);
        figure("the latency".into(), predicted.latency_us.0, groups.chain(moves).fold(0.0, f64::max))?;
        let mut loads = vec![0.0; self.problem.devices.len() + self.problem.links.len()];
        for (group, home) in self.plan.groups.iter().zip(&self.homes) {
            loads[*home] += group.time_us.0;
        }
        for (device, load) in self.plan.devices.iter().zip(&loads) {
            figure(format!("the busy time of {}", device.device), device.busy_us.0, *load)?;
        }
        for transfer in &self.plan.transfers {
            if let Some(link) = self.line(transfer) {
                loads[self.problem.devices.len() + link] += transfer.time_us.0;
            }
        }
        let share = self.plan.in_flight.map_or(0.0, |count| predicted.latency_us.0 / f64::from(count.max(1)));
        let interval = loads.into_iter().fold(share, f64::max);
        figure("the time between results".into(), predicted.interval_us.0, interval)
    }

    /// Parameters, peak and workspace of every device.
    fn memory(&self, arrivals: &Arrivals) -> Result<(), Flaw> {
        let mut highest = 0;
        for (device, entry) in self.plan.devices.iter().enumerate() {
            let groups: Vec<usize> = entry.order.iter().map(|g| g.0 as usize).collect();
            let (mut parameters, mut workspace, mut seen) = (0u64, 0u64, HashSet::new());
            for group in &groups {
                let cost = self.problem.groups[*group].costs[device].unwrap_or_default();
                parameters += cost.held.0;
                workspace = workspace.max(cost.workspace.0);
                for p in self.problem.groups[*group].parameters.iter().filter(|p| seen.insert(p.0)) {
                    parameters += self.problem.parameters[p.0 as usize].0;
                }
            }
            let load = parameters + self.peak(device, &groups, arrivals);
            highest = highest.max(load);
            let name = entry.full_name();
            figure(
                format!("what {name} holds of parameters"),
                entry.memory.parameter_bytes.0 as f64,
                parameters as f64,
            )?;
            figure(format!("the workspace on {name}"), entry.memory.workspace_bytes.0 as f64, workspace as f64)?;
            figure(format!("the peak load of {name}"), entry.memory.load_bytes.0 as f64, load as f64)?;
            if entry.memory.parameter_bytes + entry.memory.arena_bytes < entry.memory.load_bytes {
                let (stated, real) = (entry.memory.arena_bytes.0 as f64, (load - parameters) as f64);
                return Err(Flaw::Figure { what: format!("the arena of {name}"), stated, real });
            }
        }
        figure("the largest peak".into(), self.plan.predicted.peak_bytes.0 as f64, highest as f64)
    }

    /// The most that tensors and workspaces take on one device, by adding up at every birth what lives then.
    fn peak(&self, device: usize, groups: &[usize], arrivals: &Arrivals) -> u64 {
        let mut changes: Vec<(f64, i128)> = Vec::new();
        let mut live = |from: f64, to: f64, bytes: Bytes| {
            if from < to {
                changes.push((from, i128::from(bytes.0)));
                changes.push((to, -i128::from(bytes.0)));
            }
        };
        for group in groups {
            let plan = &self.plan.groups[*group];
            let workspace = self.problem.groups[*group].costs[device].unwrap_or_default().workspace;
            live(plan.start_us.0, plan.start_us.0 + plan.time_us.0, workspace);
        }
        for (index, tensor) in self.problem.tensors.iter().enumerate() {
            let home = self.home(index) == device;
            if home && tensor.view_of.is_some() {
                continue;
            }
            let born = match arrivals.get(&(index, device)) {
                Some((start, _)) => *start,
                None if !home => continue,
                None => tensor.producer.map_or(0.0, |p| self.plan.groups[p.0 as usize].start_us.0),
            };
            live(born, self.last_use(index, device, arrivals), tensor.bytes);
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut now, mut top) = (0i128, 0i128);
        for (_, change) in changes {
            now += change;
            top = top.max(now);
        }
        u64::try_from(top).unwrap_or(0)
    }

    /// When the bytes of a tensor on a device are used last, by itself or by a view of it.
    fn last_use(&self, tensor: usize, device: usize, arrivals: &Arrivals) -> f64 {
        let (mut last, mut open) = (0.0f64, vec![tensor]);
        while let Some(at) = open.pop() {
            let home = self.home(at) == device;
            if self.problem.tensors[at].is_output && self.problem.sink.0 as usize == device {
                return f64::INFINITY;
            }
            if home {
                last = last.max(self.made(at));
                let sent = (0..self.plan.devices.len()).filter_map(|to| arrivals.get(&(at, to)));
                last = sent.fold(last, |last, (_, end)| last.max(*end));
            }
            for reader in self.readers[at].iter().filter(|g| self.homes[**g] == device) {
                last = last.max(self.finish(GroupId(*reader as u32)));
                let views = self.problem.groups[*reader].outputs.iter();
                open.extend(
                    views
                        .filter(|v| self.problem.tensor(**v).view_of == Some(TensorIndex(at as u32)))
                        .map(|v| v.0 as usize),
                );
            }
        }
        last
    }

    fn targets(&self) -> Result<(), Flaw> {
        let (predicted, plan) = (&self.plan.predicted, self.plan);
        for (device, entry) in self.problem.devices.iter().zip(&plan.devices) {
            let reserved = entry.memory.parameter_bytes + entry.memory.arena_bytes;
            if device.memory.is_some_and(|limit| reserved > limit) {
                return Err(Flaw::Target(format!("the memory limit of {}", device.full_name())));
            }
        }
        if self.problem.targets.latency.is_some_and(|target| predicted.latency_us > target) {
            return Err(Flaw::Target("the latency target".into()));
        }
        if self.problem.targets.throughput.is_some_and(|rate| predicted.interval_us.0 * rate > 1e6 * (1.0 + 1e-9)) {
            return Err(Flaw::Target("the throughput target".into()));
        }
        let value = match self.problem.objective {
            Objective::Latency => predicted.latency_us.0,
            Objective::Throughput => predicted.interval_us.0,
            Objective::Memory => predicted.peak_bytes.0 as f64,
        };
        if plan.bound.value > value && !close(plan.bound.value, value) {
            return Err(Flaw::Figure { what: "the bound".into(), stated: plan.bound.value, real: value });
        }
        let gap = if value > 0.0 { ((value - plan.bound.value) / value).max(0.0) } else { 0.0 };
        figure("the gap".into(), plan.gap, gap)
    }
}

fn figure(what: String, stated: f64, real: f64) -> Result<(), Flaw> {
    if close(stated, real) { Ok(()) } else { Err(Flaw::Figure { what, stated, real }) }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}
