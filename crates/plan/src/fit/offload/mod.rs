//! A schedule with offloading as a plan of two devices: the device computes, the host keeps offloaded tensors.
//!
//! A tensor is sent when it is produced: the host copies what it receives. It returns on request: after the last step
//! before its return the device sends a single element of its newest result, and the host, whose steps run in order,
//! produces the copy to send back only once that element has arrived. The order of steps and the tensors between them thus
//! determine every transfer, and the simulation, memory account and execution of ordinary plans apply.
//! [`choose`] finds the schedule whose plan keeps a target.

pub mod choose;

use std::collections::{HashMap, HashSet};

use crate::{
    judge::{
        no_plan::NoPlan,
        solution::{Solution, judge},
    },
    problem::{
        Cost, DeviceId, GroupId, Objective, Problem, Targets,
        assemble::{CostedGroup, Network, assemble},
        placement::Placement,
    },
};
use edgecut_graph::{
    Attr, Attrs, Graph, Operator, OperatorId, TensorId, TensorType,
    units::{Bytes, Micros},
};
use edgecut_memory::model::UnrolledGraph;
use edgecut_ops::is_view;

/// The device that computes, the one that keeps offloaded tensors, and the cost of copies.
pub struct OffloadDevices<'a> {
    pub network: Network,
    pub device: DeviceId,
    pub host: DeviceId,
    /// The time of a copy on either device.
    pub copy: &'a dyn Fn(Bytes) -> Micros,
}

/// A schedule with offloading as a plan.
#[derive(Debug, Clone)]
pub struct OffloadPlan {
    /// The schedule's graph with the requests for offloaded tensors.
    pub graph: Graph,
    pub problem: Problem,
    pub solution: Solution,
}

impl OffloadPlan {
    /// What `device` must reserve for activations.
    pub fn arena(&self, device: DeviceId) -> Bytes {
        self.solution.arenas[device.0 as usize]
    }
}

/// The plan of `scheduled`. `costs` has the cost of each step on the device; copies cost what `devices` says.
///
/// # Errors
/// If a device has too little memory.
pub fn offload(scheduled: &UnrolledGraph, costs: &[Cost], devices: &OffloadDevices<'_>) -> Result<OffloadPlan, NoPlan> {
    let source = &scheduled.graph;
    let mut builder =
        OffloadBuilder { devices, source, graph: Graph::new(), copies: HashMap::new(), groups: Vec::new() };
    builder.copies = builder.graph.copy_outside(source);
    let on_host: HashSet<TensorId> = scheduled.on_host.iter().copied().collect();
    let mut newest: Option<TensorId> = source.inputs().next();
    for (index, step) in scheduled.steps.iter().enumerate() {
        let operators = || step.iter().map(|id| source.operator(*id));
        let stores = operators().flat_map(|o| &o.outputs).any(|t| on_host.contains(t));
        let loads = operators().flat_map(Operator::operands).any(|t| on_host.contains(&t));
        let cost = costs.get(index).copied().unwrap_or_default();
        match (stores, loads, newest) {
            (true, ..) => builder.add_host_copy("keep", step, None),
            (false, true, Some(newest)) => builder.add_host_copy("return", step, Some(newest)),
            _ => builder.add_step(step, cost),
        }
        if !stores && !loads {
            newest = operators().next_back().and_then(|o| o.outputs.first().copied()).or(newest);
        }
    }
    let outputs = source.outputs.iter().filter_map(|t| builder.copies.get(t).copied());
    builder.graph.outputs = outputs.collect();
    let OffloadBuilder { graph, groups, .. } = builder;
    let homes: Vec<DeviceId> = groups.iter().map(|(device, _)| *device).collect();
    let groups = groups.into_iter().map(|(_, group)| group).collect();
    let network = devices.network.clone();
    let problem = assemble(&graph, &[], groups, network, is_view, Objective::Latency, Targets::default());
    problem.check()?;
    let order: Vec<GroupId> = problem.group_ids().collect();
    let solution = judge(&problem, Placement::new(&homes, &order))?;
    Ok(OffloadPlan { graph, problem, solution })
}

/// Builds the graph of both devices and its groups.
struct OffloadBuilder<'a> {
    devices: &'a OffloadDevices<'a>,
    source: &'a Graph,
    graph: Graph,
    /// For tensors of the source: the tensor of the new graph.
    copies: HashMap<TensorId, TensorId>,
    groups: Vec<(DeviceId, CostedGroup)>,
}

impl OffloadBuilder<'_> {
    /// A step that the device computes.
    fn add_step(&mut self, step: &[OperatorId], cost: Cost) {
        let operators: Vec<OperatorId> = step.iter().map(|id| self.copied(*id)).collect();
        let names: Vec<&str> = operators.iter().map(|id| self.graph.operator(*id).name.as_str()).collect();
        let name = names.join("+");
        self.add_group(self.devices.device, name, operators, cost);
    }

    /// A copy on the host; a requested one waits for an element of `newest`.
    fn add_host_copy(&mut self, name: &str, step: &[OperatorId], newest: Option<TensorId>) {
        let request = newest.and_then(|newest| self.copies.get(&newest).copied()).map(|newest| self.request(newest));
        let mut operators = Vec::new();
        if let Some(request) = request {
            let ty = self.graph.tensor(request).ty.clone();
            operators.push(self.graph.add_operator(operator("copy", Attrs::new(), request), &[ty]));
        }
        operators.extend(step.iter().map(|id| self.copied(*id)));
        let outputs = operators.iter().flat_map(|id| &self.graph.operator(*id).outputs);
        let bytes: Bytes = outputs.filter_map(|t| self.graph.tensor(*t).ty.bytes()).sum();
        let cost = Cost { time: (self.devices.copy)(bytes), ..Cost::default() };
        self.add_group(self.devices.host, name.to_string(), operators, cost);
    }

    /// A request by the device: one element of `tensor`.
    fn request(&mut self, tensor: TensorId) -> TensorId {
        let TensorType { dtype, shape, .. } = self.graph.tensor(tensor).ty.clone();
        let list = |n: i64| Attr::List((0..shape.rank()).map(|_| Attr::Int(n)).collect());
        let is_empty = shape.iter().any(|dim| dim.get().is_none_or(|n| n == 0));
        // A scalar or an empty tensor is small enough as it is.
        let (operator, ty) = match shape.rank() == 0 || is_empty {
            true => (operator("copy", Attrs::new(), tensor), self.graph.tensor(tensor).ty.clone()),
            false => {
                let bounds = [("begin", 0), ("end", 1), ("strides", 1)];
                let mut attrs: Attrs = bounds.into_iter().map(|(name, at)| (name.into(), list(at))).collect();
                attrs.set("slice_mode", Attr::Str("end".into()));
                (operator("strided_slice", attrs, tensor), TensorType::of(dtype, &vec![1; shape.rank()]))
            }
        };
        let id = self.graph.add_operator(operator, &[ty]);
        let cost = Cost { time: (self.devices.copy)(Bytes::ZERO), ..Cost::default() };
        self.add_group(self.devices.device, "ask".to_string(), vec![id], cost);
        self.graph.operator(id).outputs[0]
    }

    /// Copies an operator of the source.
    fn copied(&mut self, id: OperatorId) -> OperatorId {
        let new = self.graph.copy_operator(self.source, id, |t| self.copies.get(&t).copied().unwrap_or(t));
        let outputs = self.graph.operator(new).outputs.clone();
        self.copies.extend(self.source.operator(id).outputs.iter().copied().zip(outputs));
        new
    }

    fn add_group(&mut self, device: DeviceId, name: String, operators: Vec<OperatorId>, cost: Cost) {
        let devices = self.devices.network.devices.len();
        self.groups.push((device, CostedGroup::on(device, devices, name, operators, cost)));
    }
}

fn operator(name: &str, attrs: Attrs, operand: TensorId) -> Operator {
    Operator::new(name, [operand]).with_attrs(attrs)
}
