//! A problem written down as a mixed-integer program.
//!
//! Which device has a group is a choice of 0 and 1. How much of a tensor goes from which device to which on its way to a
//! reader is a flow between the choices of its two ends; a link carries a tensor once however many read it. A latency is
//! a start for every group, no sooner than what it reads has come. A memory holds parameters, and what its largest group
//! needs while it runs.
//!
//! What is left out makes it a relaxation: that two transfers never share a link at one instant (the sums of their times
//! count), that two groups never share a device at one instant (unless the program is [`Detail::Ordered`]), and what a
//! memory holds for other groups than the one that runs.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Variable};

use crate::plan::{
    DeviceId, GroupId, Problem, TensorIndex,
    bound::holding,
    problem::{LinkId, Objective},
    search::{Whole, order::topological},
};

/// A program, and what its variables stand for.
pub struct Model {
    pub program: microlp::Problem,
    /// What 1 stands for in the objective's unit.
    pub unit: f64,
    /// By group: the devices that can have it.
    places: Vec<Vec<(DeviceId, Variable)>>,
    /// By group, where times count: its start.
    starts: Vec<Variable>,
    turns: Vec<Turn>,
}

/// How much the program decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Groups are divided among devices: a linear program.
    Fractions,
    Whole,
    /// And groups of one device come one after the other.
    Ordered,
}

/// How large the program of a problem is, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Groups times devices that can have them, without those that only one can.
    pub choices: usize,
    pub columns: usize,
}

/// Whether one group comes before another on their common device.
struct Turn {
    first: GroupId,
    second: GroupId,
    variable: Variable,
}

/// Limits are kept up to this part, so that rounding makes nothing impossible.
const SLACK: f64 = 1.0 + 1e-6;

impl Size {
    pub fn of(problem: &Problem) -> Size {
        let able = |group: &crate::plan::problem::Group| group.costs.iter().flatten().count();
        let places: Vec<usize> = problem.groups.iter().map(able).collect();
        let flows = |group: &crate::plan::problem::Group| {
            let makers = group.inputs.iter().filter_map(|t| problem.tensor(*t).producer);
            makers.map(|maker| places[maker.0 as usize] * able(group)).sum::<usize>()
        };
        let choices: usize = places.iter().filter(|count| **count > 1).sum();
        Size { choices, columns: choices + problem.groups.iter().map(flows).sum::<usize>() }
    }
}

impl Model {
    /// The program of `problem` for objectives between `known` and `upper`, which may be infinite unless the program
    /// decides orders; `None` if some group can be nowhere.
    pub fn new(problem: &Problem, detail: Detail, known: f64, upper: f64) -> Option<Model> {
        let mut builder = Builder::new(problem, detail, upper)?;
        let unit = if problem.objective == Objective::Memory { builder.bytes } else { builder.time };
        let within = |is_goal: bool, limit: f64| match is_goal {
            true => (known.max(0.0) / unit / SLACK, limit.min(upper / unit * SLACK)),
            false => (0.0, limit),
        };
        let by_latency = problem.objective == Objective::Latency;
        let finish = (by_latency || problem.targets.latency.is_some()).then(|| {
            let target = problem.targets.latency.map_or(f64::INFINITY, |target| target.0 / builder.time * SLACK);
            builder.goal(by_latency, within(by_latency, target))
        });
        let by_rate = problem.objective == Objective::Throughput;
        let interval = (by_rate || by_latency || problem.targets.throughput.is_some()).then(|| {
            let target = problem.targets.throughput.map_or(f64::INFINITY, |rate| 1e6 / rate / builder.time * SLACK);
            builder.goal(by_rate, within(by_rate, target))
        });
        if let (Some(finish), Some(interval)) = (finish, interval) {
            builder.at_least(vec![(finish, 1.0), (interval, -1.0)], 0.0);
        }
        let starts: Vec<Variable> = match finish {
            Some(_) => problem.groups.iter().map(|_| builder.variable()).collect(),
            None => Vec::new(),
        };
        builder.times(finish.map(|finish| (finish, &starts[..])), interval);
        let by_peak = problem.objective == Objective::Memory;
        let peak = by_peak.then(|| builder.goal(true, within(true, f64::INFINITY)));
        if by_peak || problem.devices.iter().any(|device| device.memory.is_some()) {
            builder.memories(peak);
        }
        let turns = match (detail, finish) {
            (Detail::Ordered, Some(_)) => builder.turns(&starts, upper / unit * SLACK),
            _ => Vec::new(),
        };
        let Builder { program, places, .. } = builder;
        Some(Model { program, unit, places, starts, turns })
    }

    /// The device that has the most of each group.
    pub fn devices(&self, value: impl Fn(Variable) -> f64) -> Vec<DeviceId> {
        let most = |places: &Vec<(DeviceId, Variable)>| {
            let first = places.iter().copied().reduce(|a, b| if value(b.1) > value(a.1) { b } else { a });
            first.map_or(DeviceId(0), |(device, _)| device)
        };
        self.places.iter().map(most).collect()
    }

    /// The groups by when they are half done on `devices`, where times count.
    pub fn order(
        &self,
        problem: &Problem,
        devices: &[DeviceId],
        value: impl Fn(Variable) -> f64,
    ) -> Option<Vec<GroupId>> {
        let half = |group: GroupId| {
            let time = problem.cost(group, devices[group.0 as usize]).map_or(0.0, |cost| cost.time.0);
            value(self.starts[group.0 as usize]) * self.unit + time / 2.0
        };
        (self.starts.len() == devices.len()).then(|| topological(problem, |group| -half(group)))
    }

    /// The choices of a placement, for the solver to begin with.
    pub fn hint(&self, whole: &Whole) -> Vec<(Variable, f64)> {
        let mut place = vec![0; whole.order.len()];
        whole.order.iter().enumerate().for_each(|(at, group)| place[group.0 as usize] = at);
        let one = |is: bool| if is { 1.0 } else { 0.0 };
        let places = self.places.iter().zip(&whole.devices);
        let choices = places.flat_map(|(places, home)| places.iter().map(move |(d, x)| (*x, one(d == home))));
        let turns = self.turns.iter().map(|turn| {
            let (first, second) = (turn.first.0 as usize, turn.second.0 as usize);
            (turn.variable, one(whole.devices[first] == whole.devices[second] && place[first] < place[second]))
        });
        choices.chain(turns).collect()
    }
}

struct Builder<'a> {
    problem: &'a Problem,
    program: microlp::Problem,
    /// What 1 stands for.
    time: f64,
    bytes: f64,
    places: Vec<Vec<(DeviceId, Variable)>>,
}

impl<'a> Builder<'a> {
    fn new(problem: &'a Problem, detail: Detail, upper: f64) -> Option<Builder<'a>> {
        let fastest = |group: &crate::plan::problem::Group| {
            let times = group.costs.iter().flatten().map(|cost| cost.time.0);
            times.fold(f64::INFINITY, f64::min)
        };
        let time = problem.groups.iter().map(fastest).sum::<f64>();
        let bytes = holding::parameters(problem).0.max(holding::peak(problem).value.0) as f64;
        let (time, bytes) = match problem.objective {
            Objective::Memory => (time, if upper.is_finite() { upper } else { bytes }),
            _ => (if upper.is_finite() { upper } else { time }, bytes),
        };
        let positive = |unit: f64| if unit > 0.0 && unit.is_finite() { unit } else { 1.0 };
        let mut builder = Builder {
            problem,
            program: microlp::Problem::new(OptimizationDirection::Minimize),
            time: positive(time),
            bytes: positive(bytes),
            places: Vec::with_capacity(problem.groups.len()),
        };
        for group in problem.group_ids() {
            let fits = |device: &DeviceId| {
                let limit = problem.device(*device).memory;
                holding::alone(problem, group, *device).is_some_and(|need| limit.is_none_or(|limit| need <= limit))
            };
            let places: Vec<(DeviceId, Variable)> = problem
                .device_ids()
                .filter(fits)
                .map(|device| match detail {
                    Detail::Fractions => (device, builder.program.add_var(0.0, (0.0, 1.0))),
                    Detail::Whole | Detail::Ordered => (device, builder.program.add_binary_var(0.0)),
                })
                .collect();
            if places.is_empty() {
                return None;
            }
            builder.row(places.iter().map(|(_, x)| (*x, 1.0)).collect(), ComparisonOp::Eq, 1.0);
            builder.places.push(places);
        }
        Some(builder)
    }

    fn variable(&mut self) -> Variable {
        self.program.add_var(0.0, (0.0, f64::INFINITY))
    }

    fn goal(&mut self, is_goal: bool, within: (f64, f64)) -> Variable {
        self.program.add_var(if is_goal { 1.0 } else { 0.0 }, within)
    }

    /// Adds a row; terms of one variable are added up.
    fn row(&mut self, mut terms: Vec<(Variable, f64)>, is: ComparisonOp, right: f64) {
        terms.sort_by_key(|term| term.0);
        terms.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0.0 };
            same
        });
        self.program.add_constraint(terms, is, right);
    }

    fn at_least(&mut self, terms: Vec<(Variable, f64)>, right: f64) {
        self.row(terms, ComparisonOp::Ge, right);
    }

    /// The time of `group` on the devices that can have it, each times `factor`.
    fn running(&self, group: GroupId, factor: f64) -> impl Iterator<Item = (Variable, f64)> + '_ {
        let time = move |device| self.problem.cost(group, device).map_or(0.0, |cost| cost.time.0 / self.time);
        self.places[group.0 as usize].iter().map(move |(device, x)| (*x, factor * time(*device)))
    }

    /// The link between two devices and how long a tensor is on it; `None` where it is free.
    fn way(&self, tensor: TensorIndex, from: DeviceId, to: DeviceId) -> Option<(LinkId, f64)> {
        let link = self.problem.route(from, to).filter(|_| from != to)?;
        let time = self.problem.link(link).time(self.problem.tensor(tensor).bytes).0 / self.time;
        (time > 0.0).then_some((link, time))
    }

    /// Rows for starts and the finish, and for the loads of devices and links.
    fn times(&mut self, latency: Option<(Variable, &[Variable])>, interval: Option<Variable>) {
        let problem = self.problem;
        if latency.is_none() && interval.is_none() {
            return;
        }
        if let Some((finish, starts)) = latency {
            for group in problem.group_ids() {
                let row = [(finish, 1.0), (starts[group.0 as usize], -1.0)].into_iter();
                self.at_least(row.chain(self.running(group, -1.0)).collect(), 0.0);
            }
        }
        let mut carried: Vec<(Vec<(Variable, f64)>, f64)> = vec![(Vec::new(), 0.0); problem.links.len()];
        for (tensor, readers) in problem.tensor_ids().zip(problem.consumers()) {
            let sent = match problem.tensor(tensor).producer {
                None => self.input(tensor, &readers, latency),
                Some(maker) => self.between(tensor, maker, &readers, latency),
            };
            if interval.is_none() {
                continue;
            }
            for ((from, to), parts) in sent {
                let Some((link, time)) = self.way(tensor, from, to) else { continue };
                let (terms, certain) = &mut carried[link.0 as usize];
                match (parts.iter().any(Option::is_none), parts.as_slice()) {
                    (true, _) => *certain += time,
                    (false, [Some(part)]) => terms.push((*part, -time)),
                    (false, _) => {
                        let all = self.variable();
                        terms.push((all, -time));
                        for part in parts.into_iter().flatten() {
                            self.at_least(vec![(all, 1.0), (part, -1.0)], 0.0);
                        }
                    }
                }
            }
        }
        let Some(interval) = interval else { return };
        for (mut terms, certain) in carried {
            terms.push((interval, 1.0));
            self.at_least(terms, certain);
        }
        for device in problem.device_ids() {
            let mut terms = vec![(interval, 1.0)];
            for group in problem.group_ids() {
                let here = self.places[group.0 as usize].iter().find(|(at, _)| *at == device);
                let time = problem.cost(group, device).map_or(0.0, |cost| cost.time.0 / self.time);
                terms.extend(here.map(|(_, x)| (*x, -time)));
            }
            self.at_least(terms, 0.0);
        }
    }

    /// What an input makes its readers wait for; returns what is sent, as [`Builder::between`].
    fn input(&mut self, tensor: TensorIndex, readers: &[GroupId], latency: Option<(Variable, &[Variable])>) -> Sent {
        let (source, sink) = (self.problem.source, self.problem.sink);
        let mut sent = Sent::new();
        for reader in readers {
            let mut row: Vec<(Variable, f64)> = Vec::new();
            for (device, x) in &self.places[reader.0 as usize] {
                if let Some((_, time)) = self.way(tensor, source, *device) {
                    sent.entry((source, *device)).or_default().push(Some(*x));
                    row.push((*x, -time));
                }
            }
            if let Some((_, starts)) = latency.filter(|_| !row.is_empty()) {
                row.push((starts[reader.0 as usize], 1.0));
                self.at_least(row, 0.0);
            }
        }
        if let Some((_, time)) = self.way(tensor, source, sink).filter(|_| self.problem.tensor(tensor).is_output) {
            sent.entry((source, sink)).or_default().push(None);
            if let Some((finish, _)) = latency {
                self.at_least(vec![(finish, 1.0)], time);
            }
        }
        sent
    }

    /// What a tensor makes its readers and the end wait for. Returns the variables that say how much of it is sent from
    /// which device to which, for each reader; `None` where it is certain.
    fn between(
        &mut self,
        tensor: TensorIndex,
        maker: GroupId,
        readers: &[GroupId],
        latency: Option<(Variable, &[Variable])>,
    ) -> Sent {
        let mut sent = Sent::new();
        let from = self.places[maker.0 as usize].clone();
        for reader in readers {
            let to = self.places[reader.0 as usize].clone();
            let mut row: Vec<(Variable, f64)> = Vec::new();
            let is_free = |d: &DeviceId| to.iter().all(|(e, _)| self.way(tensor, *d, *e).is_none());
            if !from.iter().all(|(d, _)| is_free(d)) {
                let flows: Vec<Vec<Variable>> =
                    from.iter().map(|_| to.iter().map(|_| self.variable()).collect()).collect();
                for ((d, x), flows) in from.iter().zip(&flows) {
                    let out = flows.iter().map(|flow| (*flow, 1.0)).chain([(*x, -1.0)]).collect();
                    self.row(out, ComparisonOp::Eq, 0.0);
                    for ((e, _), flow) in to.iter().zip(flows) {
                        if let Some((_, time)) = self.way(tensor, *d, *e) {
                            sent.entry((*d, *e)).or_default().push(Some(*flow));
                            row.push((*flow, -time));
                        }
                    }
                }
                for (at, (_, x)) in to.iter().enumerate() {
                    let into = flows.iter().map(|flows| (flows[at], 1.0)).chain([(*x, -1.0)]).collect();
                    self.row(into, ComparisonOp::Eq, 0.0);
                }
            }
            if let Some((_, starts)) = latency {
                row.extend([(starts[reader.0 as usize], 1.0), (starts[maker.0 as usize], -1.0)]);
                row.extend(self.running(maker, -1.0));
                self.at_least(row, 0.0);
            }
        }
        if self.problem.tensor(tensor).is_output {
            let mut row: Vec<(Variable, f64)> = Vec::new();
            for (device, x) in &from {
                if let Some((_, time)) = self.way(tensor, *device, self.problem.sink) {
                    sent.entry((*device, self.problem.sink)).or_default().push(Some(*x));
                    row.push((*x, -time));
                }
            }
            if let Some((finish, starts)) = latency {
                row.extend([(finish, 1.0), (starts[maker.0 as usize], -1.0)]);
                row.extend(self.running(maker, -1.0));
                self.at_least(row, 0.0);
            }
        }
        sent
    }

    /// Rows for what every memory holds, below its limit and below `peak`.
    fn memories(&mut self, peak: Option<Variable>) {
        let problem = self.problem;
        let mut users: Vec<Vec<GroupId>> = vec![Vec::new(); problem.parameters.len()];
        for group in problem.group_ids() {
            for parameter in &problem.group(group).parameters {
                users[parameter.0 as usize].push(group);
            }
        }
        users.iter_mut().for_each(|users| users.dedup());
        // At the end the sink holds all results; views may share their bytes with what they view.
        let results = problem.tensors.iter().filter(|tensor| tensor.is_output && tensor.view_of.is_none());
        let results: f64 = results.map(|tensor| tensor.bytes.0 as f64).sum();
        for device in problem.device_ids() {
            let floor = if device == problem.sink { results / self.bytes } else { 0.0 };
            let largest = self.program.add_var(0.0, (floor, f64::INFINITY));
            let mut held = vec![(largest, 1.0)];
            let place = |builder: &Builder<'_>, group: GroupId| {
                let places = builder.places[group.0 as usize].iter();
                places.clone().find(|(at, _)| *at == device).map(|(_, x)| *x)
            };
            for group in problem.group_ids() {
                let Some((x, cost)) = place(self, group).zip(problem.cost(group, device)) else { continue };
                held.push((x, cost.held.0 as f64 / self.bytes));
                let need = holding::running(problem, group, device).map_or(0, |need| need.0) as f64 / self.bytes;
                if need > floor {
                    self.at_least(vec![(largest, 1.0), (x, -need)], 0.0);
                }
            }
            for (bytes, users) in problem.parameters.iter().zip(&users).filter(|(bytes, _)| bytes.0 > 0) {
                let users: Vec<Variable> = users.iter().filter_map(|user| place(self, *user)).collect();
                let here = match users.as_slice() {
                    [] => continue,
                    [user] => *user,
                    users => {
                        let here = self.variable();
                        for user in users {
                            self.at_least(vec![(here, 1.0), (*user, -1.0)], 0.0);
                        }
                        here
                    }
                };
                held.push((here, bytes.0 as f64 / self.bytes));
            }
            if let Some(limit) = problem.device(device).memory {
                self.row(held.clone(), ComparisonOp::Le, limit.0 as f64 / self.bytes * SLACK);
            }
            if let Some(peak) = peak {
                held.iter_mut().for_each(|(_, factor)| *factor = -*factor);
                held.push((peak, 1.0));
                self.at_least(held, 0.0);
            }
        }
    }

    /// Rows that keep groups of one device apart that nothing else does; nothing ends after `horizon`.
    fn turns(&mut self, starts: &[Variable], horizon: f64) -> Vec<Turn> {
        let problem = self.problem;
        // By group: everything that it needs, and what that needs.
        let mut before = vec![vec![false; problem.groups.len()]; problem.groups.len()];
        for group in problem.group_ids() {
            for maker in problem.group(group).inputs.iter().filter_map(|t| problem.tensor(*t).producer) {
                let needed = before[maker.0 as usize].clone();
                let mine = &mut before[group.0 as usize];
                mine[maker.0 as usize] = true;
                mine.iter_mut().zip(needed).for_each(|(mine, theirs)| *mine |= theirs);
            }
        }
        let mut turns = Vec::new();
        for second in problem.group_ids() {
            for first in (0..second.0).map(GroupId).filter(|first| !before[second.0 as usize][first.0 as usize]) {
                let (one, other) = (&self.places[first.0 as usize], &self.places[second.0 as usize]);
                let same = |(d, x): &(DeviceId, Variable)| other.iter().find(|(e, _)| e == d).map(|(_, y)| (*x, *y));
                let common: Vec<(Variable, Variable)> = one.iter().filter_map(same).collect();
                if common.is_empty() {
                    continue;
                }
                let [ahead, behind] = [self.program.add_binary_var(0.0), self.program.add_binary_var(0.0)];
                for (x, y) in common {
                    self.at_least(vec![(ahead, 1.0), (behind, 1.0), (x, -1.0), (y, -1.0)], -1.0);
                }
                for (first, second, variable) in [(first, second, ahead), (second, first, behind)] {
                    let row =
                        [(starts[second.0 as usize], 1.0), (starts[first.0 as usize], -1.0), (variable, -horizon)];
                    self.at_least(row.into_iter().chain(self.running(first, -1.0)).collect(), -horizon);
                    turns.push(Turn { first, second, variable });
                }
            }
        }
        turns
    }
}

/// By sender and receiver: how much of a tensor each of its readers makes go there.
type Sent = BTreeMap<(DeviceId, DeviceId), Vec<Option<Variable>>>;
