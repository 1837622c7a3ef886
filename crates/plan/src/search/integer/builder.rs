//! Variables and constraints of a mixed-integer program under construction.

use microlp::{ComparisonOp, OptimizationDirection, Variable};

use crate::{
    judge::bound::{energy, footprint},
    problem::{DeviceId, Group, GroupId, LinkId, Objective, Problem, TensorIndex},
};

use edgecut_graph::units::Micros;

/// What the program decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Fractions of groups on devices: the linear relaxation.
    Fractions,
    /// The device of each group.
    Whole,
    /// Also the order of the groups on each device.
    Ordered,
}

/// Relative slack of limits, so that rounding makes no placement infeasible.
pub(super) const SLACK: f64 = 1.0 + 1e-6;

/// A program under construction, with one choice of device per group.
pub(super) struct ProgramBuilder<'a> {
    pub(super) problem: &'a Problem,
    pub(super) program: microlp::Problem,
    /// The values of 1 in microseconds, in bytes and in joules.
    pub(super) time: f64,
    pub(super) bytes: f64,
    pub(super) joules: f64,
    pub(super) places: Vec<Vec<(DeviceId, Variable)>>,
}

impl<'a> ProgramBuilder<'a> {
    /// A program with the choices of devices only; `upper` is a known value of the objective, or infinite. `None` if some
    /// group runs nowhere.
    pub(super) fn new(problem: &'a Problem, detail: Detail, upper: f64) -> Option<ProgramBuilder<'a>> {
        let fastest = |group: &Group| {
            let times = group.costs.iter().flatten().map(|cost| cost.time.0);
            times.fold(f64::INFINITY, f64::min)
        };
        let time = problem.groups.iter().map(fastest).sum::<f64>();
        let bytes = footprint::parameters(problem).0.max(footprint::peak(problem).value.0) as f64;
        let joules = energy::run(problem, Micros(time)).value.0;
        let known = |unit: f64| if upper.is_finite() { upper } else { unit };
        let (time, bytes, joules) = match problem.objective {
            Objective::Latency | Objective::Throughput => (known(time), bytes, joules),
            Objective::Memory => (time, known(bytes), joules),
            Objective::Energy => (time, bytes, known(joules)),
        };
        let positive = |unit: f64| if unit > 0.0 && unit.is_finite() { unit } else { 1.0 };
        let mut builder = ProgramBuilder {
            problem,
            program: microlp::Problem::new(OptimizationDirection::Minimize),
            time: positive(time),
            bytes: positive(bytes),
            joules: positive(joules),
            places: Vec::with_capacity(problem.groups.len()),
        };
        for group in problem.group_ids() {
            let fits = |device: &DeviceId| {
                let limit = problem.device(*device).memory;
                footprint::group(problem, group, *device).is_some_and(|need| limit.is_none_or(|limit| need <= limit))
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

    /// A new variable that is not negative.
    pub(super) fn variable(&mut self) -> Variable {
        self.program.add_var(0.0, (0.0, f64::INFINITY))
    }

    /// A new variable, minimised if it is the goal.
    pub(super) fn goal(&mut self, is_goal: bool, within: (f64, f64)) -> Variable {
        self.program.add_var(if is_goal { 1.0 } else { 0.0 }, within)
    }

    /// Adds a constraint; terms with the same variable are added up.
    pub(super) fn row(&mut self, mut terms: Vec<(Variable, f64)>, is: ComparisonOp, right: f64) {
        terms.sort_by_key(|term| term.0);
        terms.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0.0 };
            same
        });
        self.program.add_constraint(terms, is, right);
    }

    pub(super) fn at_least(&mut self, terms: Vec<(Variable, f64)>, right: f64) {
        self.row(terms, ComparisonOp::Ge, right);
    }

    /// The time of `group` times `factor`, over its devices.
    pub(super) fn group_time(&self, group: GroupId, factor: f64) -> impl Iterator<Item = (Variable, f64)> + '_ {
        let time = move |device| self.problem.cost(group, device).map_or(0.0, |cost| cost.time.0 / self.time);
        self.places[group.0 as usize].iter().map(move |(device, x)| (*x, factor * time(*device)))
    }

    /// `energy` is at least the idle power until `finish` and what the groups consume above it.
    pub(super) fn energy(&mut self, energy: Variable, finish: Variable) {
        let idle = self.problem.idle_power().during(Micros(self.time)).0 / self.joules;
        let mut terms = vec![(energy, 1.0), (finish, -idle)];
        for group in self.problem.group_ids() {
            for (device, x) in &self.places[group.0 as usize] {
                let cost = self.problem.cost(group, *device).unwrap_or_default();
                terms.push((*x, -cost.energy_above_idle().0 / self.joules));
            }
        }
        self.at_least(terms, 0.0);
    }

    /// The link between two devices and the time of a tensor on it; `None` where the transfer is free.
    pub(super) fn transfer(&self, tensor: TensorIndex, from: DeviceId, to: DeviceId) -> Option<(LinkId, f64)> {
        let link = self.problem.route(from, to).filter(|_| from != to)?;
        let time = self.problem.link(link).time(self.problem.tensor(tensor)).0 / self.time;
        (time > 0.0).then_some((link, time))
    }
}
