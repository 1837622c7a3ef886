//! A schedule of one device that puts tensors on another device meanwhile, as a plan of both.
//!
//! A tensor goes when it is made: the neighbour copies what it receives. It comes back when the device asks for it: after
//! the last step before its return the device sends a single element of what it has just made, and the neighbour, whose
//! steps run in order, makes what is sent back only when that is there. So nothing but the order of steps and the
//! tensors between them says when what goes where, and any plan's simulation, account and run will do.

use std::collections::{HashMap, HashSet};

use super::{
    DeviceId, GroupId, Problem,
    assemble::{CostedGroup, Network, assemble},
    problem::{Cost, Objective, Targets},
    solve::{NoPlan, Solution, judge},
    work::Placement,
};
use crate::{
    graph::{Arg, Attr, Attrs, Graph, Operator, OperatorId, TensorId, TensorType},
    memory::model::Scheduled,
    ops::is_view,
    units::{Bytes, Micros},
};

/// Who computes, who keeps, and what that takes.
pub struct Hosts<'a> {
    pub network: Network,
    pub here: DeviceId,
    pub there: DeviceId,
    /// How long copying so many bytes takes on either.
    pub copy: &'a dyn Fn(Bytes) -> Micros,
}

/// A schedule as a plan.
#[derive(Debug, Clone)]
pub struct Away {
    /// The schedule's graph with what asks for tensors.
    pub graph: Graph,
    pub problem: Problem,
    pub solution: Solution,
}

/// The plan of `scheduled`, each step of which costs on its device what `costs` has for it; of copies nothing is taken from
/// there.
///
/// # Errors
/// If a device has too little memory.
pub fn away(scheduled: &Scheduled, costs: &[Cost], hosts: &Hosts<'_>) -> Result<Away, NoPlan> {
    let mut made = Made { hosts, whole: &scheduled.graph, graph: Graph::new(), at: HashMap::new(), groups: Vec::new() };
    made.at = made.graph.copy_outside(&scheduled.graph);
    let on_host: HashSet<TensorId> = scheduled.on_host.iter().copied().collect();
    let mut newest: Option<TensorId> = scheduled.graph.inputs().next();
    for (index, step) in scheduled.steps.iter().enumerate() {
        let operators = || step.iter().map(|id| scheduled.graph.operator(*id));
        let goes = operators().flat_map(|o| &o.outputs).any(|t| on_host.contains(t));
        let comes = operators().flat_map(Operator::operands).any(|t| on_host.contains(&t));
        let cost = costs.get(index).copied().unwrap_or_default();
        match (goes, comes, newest) {
            (true, ..) => made.there("keep", step, None),
            (false, true, Some(newest)) => made.there("return", step, Some(newest)),
            _ => made.here(step, cost),
        }
        if !goes && !comes {
            newest = operators().next_back().and_then(|o| o.outputs.first().copied()).or(newest);
        }
    }
    let outputs = scheduled.graph.outputs.iter().filter_map(|t| made.at.get(t).copied());
    made.graph.outputs = outputs.collect();
    let Made { graph, groups, .. } = made;
    let devices: Vec<DeviceId> = groups.iter().map(|(device, _)| *device).collect();
    let groups = groups.into_iter().map(|(_, group)| group).collect();
    let network = hosts.network.clone();
    let problem = assemble(&graph, groups, network, is_view, Objective::Latency, Targets::default());
    problem.check()?;
    let order: Vec<GroupId> = problem.group_ids().collect();
    let solution = judge(&problem, Placement::whole(&devices, &order))?;
    Ok(Away { graph, problem, solution })
}

/// The graph that is being made, and its groups with where they run.
struct Made<'a> {
    hosts: &'a Hosts<'a>,
    whole: &'a Graph,
    graph: Graph,
    /// For each tensor of the whole where it is.
    at: HashMap<TensorId, TensorId>,
    groups: Vec<(DeviceId, CostedGroup)>,
}

impl Made<'_> {
    /// A step that the device computes.
    fn here(&mut self, step: &[OperatorId], cost: Cost) {
        let operators: Vec<OperatorId> = step.iter().map(|id| self.copied(*id)).collect();
        let names: Vec<&str> = operators.iter().map(|id| self.graph.operator(*id).name.as_str()).collect();
        let name = names.join("+");
        self.group(self.hosts.here, name, operators, cost);
    }

    /// A copy that the neighbour makes; if it is asked for, once `newest` is there.
    fn there(&mut self, name: &str, step: &[OperatorId], newest: Option<TensorId>) {
        let asked = newest.and_then(|newest| self.at.get(&newest).copied()).map(|newest| self.element(newest));
        let mut operators = Vec::new();
        if let Some(asked) = asked {
            let ty = self.graph.tensor(asked).ty.clone();
            operators.push(self.graph.add_operator(operator("copy", Attrs::new(), asked), &[ty]));
        }
        operators.extend(step.iter().map(|id| self.copied(*id)));
        let outputs = operators.iter().flat_map(|id| &self.graph.operator(*id).outputs);
        let bytes: Bytes = outputs.filter_map(|t| self.graph.tensor(*t).ty.bytes()).sum();
        let cost = Cost { time: (self.hosts.copy)(bytes), ..Cost::default() };
        self.group(self.hosts.there, name.to_string(), operators, cost);
    }

    /// One element of a tensor, made by the device.
    fn element(&mut self, tensor: TensorId) -> TensorId {
        let TensorType { dtype, shape, .. } = self.graph.tensor(tensor).ty.clone();
        let list = |n: i64| Attr::List((0..shape.rank()).map(|_| Attr::Int(n)).collect());
        let is_empty = shape.iter().any(|dim| dim.get().is_none_or(|n| n == 0));
        // What has no axes, or nothing on them, is small enough.
        let (operator, ty) = match shape.rank() == 0 || is_empty {
            true => (operator("copy", Attrs::new(), tensor), self.graph.tensor(tensor).ty.clone()),
            false => {
                let ends = [("begin", 0), ("end", 1), ("strides", 1)];
                let mut attrs: Attrs = ends.into_iter().map(|(name, at)| (name.into(), list(at))).collect();
                attrs.set("slice_mode", Attr::Str("end".into()));
                (operator("strided_slice", attrs, tensor), TensorType::of(dtype, &vec![1; shape.rank()]))
            }
        };
        let id = self.graph.add_operator(operator, &[ty]);
        let cost = Cost { time: (self.hosts.copy)(Bytes::ZERO), ..Cost::default() };
        self.group(self.hosts.here, "ask".to_string(), vec![id], cost);
        self.graph.operator(id).outputs[0]
    }

    /// An operator of the whole graph, its operands where they are now.
    fn copied(&mut self, id: OperatorId) -> OperatorId {
        let new = self.graph.copy_operator(self.whole, id, |t| self.at.get(&t).copied().unwrap_or(t));
        self.at.extend(self.whole.operator(id).outputs.iter().copied().zip(self.graph.operator(new).outputs.clone()));
        new
    }

    fn group(&mut self, device: DeviceId, name: String, operators: Vec<OperatorId>, cost: Cost) {
        let devices = self.hosts.network.devices.len();
        self.groups.push((device, CostedGroup::on(device, devices, name, operators, cost)));
    }
}

fn operator(name: &str, attrs: Attrs, operand: TensorId) -> Operator {
    Operator {
        name: name.into(),
        attrs,
        args: vec![Arg::Tensor(operand)],
        outputs: Vec::new(),
        tuple_result: false,
        label: None,
        place: None,
    }
}
