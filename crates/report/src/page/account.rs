//! The planning problem that a plan's groups make with its model: which tensors they read, and which of them are views.

use edgecut_graph::{Graph, OperatorId};
use edgecut_ops::is_view;
use edgecut_plan::{
    Plan, Problem,
    assemble::{CostedGroup, Network, assemble},
    file::GroupPlan,
    problem::{Cost, Device},
};

/// `None` if the plan's operators are not those of `graph`.
pub(crate) fn problem(graph: &Graph, plan: &Plan) -> Option<Problem> {
    let known = |id: &OperatorId| (id.0 as usize) < graph.operators().len();
    if !plan.groups.iter().flat_map(|group| &group.operators).all(known) {
        return None;
    }
    let count = plan.devices.len();
    let group = |group: &GroupPlan| {
        let cost = Cost { time: group.time_us, workspace: group.workspace_bytes, ..Cost::default() };
        CostedGroup::on(group.device, count, group.name.clone(), group.operators.clone(), cost)
    };
    let device = |device: &edgecut_plan::file::DevicePlan| Device {
        server: device.server.clone(),
        name: device.device.clone(),
        memory: device.memory_limit_bytes,
        ..Device::default()
    };
    let network = Network {
        devices: plan.devices.iter().map(device).collect(),
        links: Vec::new(),
        routes: vec![None; count * count],
        source: plan.source,
        sink: plan.sink,
    };
    let groups = plan.groups.iter().map(group).collect();
    Some(assemble(graph, &plan.states, groups, network, is_view, plan.objective, plan.targets))
}
