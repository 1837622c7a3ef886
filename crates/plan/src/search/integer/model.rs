//! The mixed-integer program of a problem.
//!
//! The device of a group is a choice of binary variables. The transfers of a tensor to a reader are a flow between the
//! choices of producer and reader; a link carries a tensor once for all its readers. For latency, every group has a start,
//! no earlier than the arrival of its operands. The memory of a device holds the parameters, and the working set of its
//! largest group. For energy, a variable is at least idle power · finish and what the chosen devices consume above it.
//!
//! It is a relaxation: transfers may overlap on a link and groups on a device (only the sums of their times count, unless
//! the program is [`Detail::Ordered`]), and tensors kept for later groups take no memory.

use microlp::Variable;

use super::{
    builder::{Detail, ProgramBuilder, SLACK},
    precedence::Precedence,
};
use crate::{
    problem::{DeviceId, Group, GroupId, Objective, Problem, placement::Placement},
    search::order::topological_order,
};

/// A program, and the meaning of its variables.
pub(super) struct Model {
    pub program: microlp::Problem,
    /// The value of 1 in the objective's unit.
    pub unit: f64,
    /// The value of 1 of starts in microseconds.
    time: f64,
    /// By group: the devices that it can run on, and the variable of each choice.
    places: Vec<Vec<(DeviceId, Variable)>>,
    /// By group: its start; empty where times do not count.
    starts: Vec<Variable>,
    precedences: Vec<Precedence>,
}

/// The approximate size of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Pairs of a group and a device, for groups with more than one device.
    pub choices: usize,
    pub columns: usize,
}

impl Size {
    pub(super) fn of(problem: &Problem) -> Size {
        let able = |group: &Group| group.costs.iter().flatten().count();
        let places: Vec<usize> = problem.groups.iter().map(able).collect();
        let flows = |group: &Group| {
            let producers = group.inputs.iter().filter_map(|t| problem.tensor(*t).producer);
            producers.map(|producer| places[producer.0 as usize] * able(group)).sum::<usize>()
        };
        let choices: usize = places.iter().filter(|count| **count > 1).sum();
        Size { choices, columns: choices + problem.groups.iter().map(flows).sum::<usize>() }
    }
}

impl Model {
    /// The program of `problem` for objectives between `known` and `upper`, which is finite for [`Detail::Ordered`]; `None`
    /// if some group runs nowhere.
    pub(super) fn new(problem: &Problem, detail: Detail, known: f64, upper: f64) -> Option<Model> {
        let mut builder = ProgramBuilder::new(problem, detail, upper)?;
        let unit = match problem.objective {
            Objective::Latency | Objective::Throughput => builder.time,
            Objective::Memory => builder.bytes,
            Objective::Energy => builder.joules,
        };
        let within = |is_goal: bool, limit: f64| match is_goal {
            true => (known.max(0.0) / unit / SLACK, limit.min(upper / unit * SLACK)),
            false => (0.0, limit),
        };
        let by_latency = problem.objective == Objective::Latency;
        let by_energy = problem.objective == Objective::Energy;
        let finish = (by_latency || by_energy || problem.targets.latency.is_some()).then(|| {
            let target = problem.targets.latency.map_or(f64::INFINITY, |target| target.0 / builder.time * SLACK);
            builder.goal(by_latency, within(by_latency, target))
        });
        let by_rate = problem.objective == Objective::Throughput;
        let interval = (by_rate || by_latency || by_energy || problem.targets.throughput.is_some()).then(|| {
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
        if let Some(finish) = finish.filter(|_| by_energy) {
            let energy = builder.goal(true, within(true, f64::INFINITY));
            builder.energy(energy, finish);
        }
        let by_peak = problem.objective == Objective::Memory;
        let peak = by_peak.then(|| builder.goal(true, within(true, f64::INFINITY)));
        if by_peak || problem.devices.iter().any(|device| device.memory.is_some()) {
            builder.memories(peak);
        }
        let precedences = match (detail, finish) {
            (Detail::Ordered, Some(_)) => {
                // By energy, no run is so long that idle power alone consumes more.
                let horizon = if by_energy { 1e6 * upper / problem.idle_power().0 } else { upper };
                builder.precedences(&starts, horizon / builder.time * SLACK)
            }
            _ => Vec::new(),
        };
        let ProgramBuilder { program, places, time, .. } = builder;
        Some(Model { program, unit, time, places, starts, precedences })
    }

    /// By group: the device with its largest fraction.
    pub(super) fn devices(&self, value: impl Fn(Variable) -> f64) -> Vec<DeviceId> {
        let most = |places: &Vec<(DeviceId, Variable)>| {
            let first = places.iter().copied().reduce(|a, b| if value(b.1) > value(a.1) { b } else { a });
            first.map_or(DeviceId(0), |(device, _)| device)
        };
        self.places.iter().map(most).collect()
    }

    /// The groups by the midpoints of their execution on `devices`; `None` where times do not count.
    pub(super) fn order(
        &self,
        problem: &Problem,
        devices: &[DeviceId],
        value: impl Fn(Variable) -> f64,
    ) -> Option<Vec<GroupId>> {
        let midpoint = |group: GroupId| {
            let time = problem.cost(group, devices[group.0 as usize]).map_or(0.0, |cost| cost.time.0);
            value(self.starts[group.0 as usize]) * self.time + time / 2.0
        };
        (self.starts.len() == devices.len()).then(|| topological_order(problem, |group| -midpoint(group)))
    }

    /// The values of the binary variables for a placement: a warm start.
    pub(super) fn warm_start(&self, placement: &Placement) -> Vec<(Variable, f64)> {
        let mut position = vec![0; placement.order.len()];
        placement.order.iter().enumerate().for_each(|(at, group)| position[group.0 as usize] = at);
        let one = |is: bool| if is { 1.0 } else { 0.0 };
        let places = self.places.iter().zip(&placement.devices);
        let choices = places.flat_map(|(places, home)| places.iter().map(move |(d, x)| (*x, one(d == home))));
        let precedences = self.precedences.iter().map(|precedence| {
            let (first, second) = (precedence.first.0 as usize, precedence.second.0 as usize);
            (
                precedence.variable,
                one(placement.devices[first] == placement.devices[second] && position[first] < position[second]),
            )
        });
        choices.chain(precedences).collect()
    }
}
