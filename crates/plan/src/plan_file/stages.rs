//! Stages: a device's consecutive groups between two communications, loaded and run as one.
//!
//! `judge::stage_cut` says where a device's groups are cut; [`stages`] cuts a plan for execution and export.

use std::collections::{BTreeSet, VecDeque};

use edgecut_graph::{DeviceName, Graph, OperatorId, Origin, Part, Parts, StateError, StateTensors, TensorId};

use super::file::Plan;
use crate::{
    judge::stage_cut::{Exchange, cut},
    problem::{DeviceId, GroupId},
};

/// Some consecutive groups of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    pub device: DeviceId,
    /// In the device's order.
    pub groups: Vec<GroupId>,
    /// Their operators as a graph.
    pub part: Part,
}

/// Why a plan has no stages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    #[error("the plan was made for another model: {0}")]
    OtherModel(String),
    #[error("the plan was made for another model: {0}")]
    State(#[from] StateError),
    #[error("the plan's orders cannot be run: group {group} on {device} waits for {tensor}, which is never made")]
    Order { group: String, device: DeviceName, tensor: String },
}

/// The stages of `plan`, made for `graph`, in an order in which they can run one after the other; those of a device are
/// in the device's order.
///
/// # Errors
/// If the plan does not place every operator of the graph once, or its orders wait for each other.
pub fn stages(plan: &Plan, graph: &Graph) -> Result<Vec<Stage>, StageError> {
    let placed = Placed {
        plan,
        graph,
        states: graph.states(&plan.states)?,
        device_of: devices_of_operators(plan, graph)?,
        consumers: graph.consumers(),
    };
    let mut queues: Vec<VecDeque<Vec<GroupId>>> = Vec::with_capacity(plan.devices.len());
    for (index, device) in (0u32..).map(DeviceId).zip(&plan.devices) {
        let ranges = cut(placed.exchanges(index));
        queues.push(ranges.into_iter().map(|range| device.order[range].to_vec()).collect());
    }
    let (mut made, parts): (BTreeSet<TensorId>, _) = (BTreeSet::new(), Parts::of(graph));
    let mut stages = Vec::with_capacity(queues.iter().map(VecDeque::len).sum());
    loop {
        let (mut next, mut blocked) = (None, None);
        for (device, queue) in queues.iter().enumerate() {
            let Some(groups) = queue.front() else { continue };
            match placed.missing(groups, &made) {
                None if next.is_none_or(|(first, _)| groups[0] < first) => next = Some((groups[0], device)),
                None => {}
                Some(missing) => blocked = blocked.or(Some((device, missing))),
            }
        }
        let Some((_, device)) = next else {
            return match blocked {
                Some((device, (group, tensor))) => Err(placed.order_error(device, group, tensor)),
                None => Ok(stages),
            };
        };
        let groups = queues[device].pop_front().unwrap_or_default();
        let operators: Vec<OperatorId> = placed.operators(&groups).collect();
        made.extend(operators.iter().flat_map(|id| &graph.operator(*id).outputs));
        stages.push(Stage { device: DeviceId(device as u32), groups, part: parts.cut(&operators) });
    }
}

/// The device of every operator.
fn devices_of_operators(plan: &Plan, graph: &Graph) -> Result<Vec<DeviceId>, StageError> {
    let mut devices = vec![None; graph.operators().len()];
    for group in &plan.groups {
        for operator in &group.operators {
            match devices.get_mut(operator.0 as usize) {
                Some(place @ None) => *place = Some(group.device),
                Some(Some(_)) => {
                    return Err(StageError::OtherModel(format!("operator {} is in two groups", operator.0)));
                }
                None => return Err(StageError::OtherModel(format!("it has no operator {}", operator.0))),
            }
        }
    }
    let place = |(index, place): (usize, Option<DeviceId>)| {
        place.ok_or_else(|| {
            let name = &graph.operator(OperatorId(index as u32)).name;
            StageError::OtherModel(format!("operator {index} ({name}) is in no group"))
        })
    };
    devices.into_iter().enumerate().map(place).collect()
}

/// A plan with the device of every operator.
struct Placed<'a> {
    plan: &'a Plan,
    graph: &'a Graph,
    states: Vec<StateTensors>,
    device_of: Vec<DeviceId>,
    consumers: Vec<Vec<OperatorId>>,
}

impl Placed<'_> {
    fn operators(&self, groups: &[GroupId]) -> impl Iterator<Item = OperatorId> {
        groups.iter().flat_map(|group| &self.plan.groups[group.0 as usize].operators).copied()
    }

    /// What the groups of a device exchange, in its order.
    fn exchanges(&self, device: DeviceId) -> Vec<Exchange> {
        let mut here: BTreeSet<TensorId> = BTreeSet::new();
        let exchange = |group: &GroupId| {
            let operators = || self.operators(std::slice::from_ref(group)).map(|id| self.graph.operator(id));
            let known = here.len();
            here.extend(operators().flat_map(|o| o.operands()).filter(|tensor| self.comes_in(*tensor, device)));
            let sends = operators().flat_map(|o| &o.outputs).any(|tensor| self.goes_out(*tensor, device));
            Exchange { receives: here.len() > known, sends }
        };
        self.plan.devices[device.0 as usize].order.iter().map(exchange).collect()
    }

    /// Whether `tensor` comes to `device` from another one. Inputs are at their source from the start, states where they are
    /// read.
    fn comes_in(&self, tensor: TensorId, device: DeviceId) -> bool {
        match &self.graph.tensor(tensor).origin {
            Origin::Operator { operator, .. } => self.device_of[operator.0 as usize] != device,
            Origin::Input => self.plan.source != device && self.states.iter().all(|state| state.input != tensor),
            Origin::Parameter | Origin::Constant(_) => false,
        }
    }

    /// Whether `tensor`, made on `device`, goes to another one.
    fn goes_out(&self, tensor: TensorId, device: DeviceId) -> bool {
        let read_elsewhere = |tensor: TensorId| {
            self.consumers[tensor.0 as usize].iter().any(|reader| self.device_of[reader.0 as usize] != device)
        };
        let mut next = self.states.iter().filter(|state| state.output == tensor).peekable();
        match next.peek() {
            Some(_) => read_elsewhere(tensor) || next.any(|state| read_elsewhere(state.input)),
            None => read_elsewhere(tensor) || (self.graph.outputs.contains(&tensor) && self.plan.sink != device),
        }
    }

    /// The first group of a stage that reads a tensor which is neither in `made` nor made before it in the stage.
    fn missing(&self, groups: &[GroupId], made: &BTreeSet<TensorId>) -> Option<(GroupId, TensorId)> {
        let mut inside: BTreeSet<TensorId> = BTreeSet::new();
        groups.iter().find_map(|group| {
            self.operators(std::slice::from_ref(group)).find_map(|id| {
                let operator = self.graph.operator(id);
                let is_made = |tensor: &TensorId| {
                    self.graph.producer(*tensor).is_none() || made.contains(tensor) || inside.contains(tensor)
                };
                let missing = operator.operands().find(|tensor| !is_made(tensor));
                inside.extend(operator.outputs.iter().copied());
                missing.map(|tensor| (*group, tensor))
            })
        })
    }

    fn order_error(&self, device: usize, group: GroupId, tensor: TensorId) -> StageError {
        StageError::Order {
            group: self.plan.groups[group.0 as usize].name.clone(),
            device: self.plan.devices[device].device_name(),
            tensor: self.graph.tensor(tensor).name.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{Arg, DType, Granularity, Operator, TensorType, units::Micros};

    use super::*;
    use crate::{
        judge::{pipeline_depth, solution::judge},
        plan_file::file::ModelRef,
        problem::{
            Cost, Device, Objective, Targets,
            assemble::{CostedGroup, Network, assemble},
            placement::Placement,
        },
    };

    /// A graph in which operator `i` reads the outputs of the operators in `needs[i]`, or the input.
    fn graph(needs: &[&[u32]]) -> Graph {
        let ty = TensorType::of(DType::F32, &[1]);
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        for needs in needs {
            let of = |id: &u32| Arg::Tensor(graph.operator(OperatorId(*id)).outputs[0]);
            let args: Vec<Arg> = if needs.is_empty() { vec![Arg::Tensor(x)] } else { needs.iter().map(of).collect() };
            let operator = Operator::new("nn.relu", args);
            graph.add_operator(operator, std::slice::from_ref(&ty));
        }
        let last = TensorId(graph.tensors().len() as u32 - 1);
        graph.outputs.push(last);
        graph
    }

    /// The plan that gives operator `i` to `devices[i]`, in program order; inputs and results belong to device 0. Also
    /// the number of stages of each device when it is simulated.
    fn plan(graph: &Graph, devices: &[u32], count: u32) -> (Plan, Vec<usize>) {
        let cost = Cost { time: Micros(1.0), ..Cost::default() };
        let group = |(id, _): (OperatorId, &Operator)| CostedGroup {
            name: format!("group {}", id.0),
            label: format!("group {}", id.0),
            operators: vec![id],
            costs: vec![Some(cost); count as usize],
        };
        let device = |n: u32| Device {
            server: format!("s{n}"),
            name: "cpu".into(),
            address: None,
            memory: None,
            ..Device::default()
        };
        let network = Network {
            devices: (0..count).map(device).collect(),
            links: Vec::new(),
            routes: vec![None; (count * count) as usize],
            source: DeviceId(0),
            sink: DeviceId(0),
        };
        let groups = graph.operators().map(group).collect();
        let problem = assemble(graph, &[], groups, network, |_| false, Objective::Latency, Targets::default());
        let homes: Vec<DeviceId> = devices.iter().map(|d| DeviceId(*d)).collect();
        let order: Vec<GroupId> = problem.group_ids().collect();
        let solution = judge(&problem, Placement::new(&homes, &order)).unwrap();
        let simulated = |device: usize| cut(pipeline_depth::exchanges(&solution.evaluation.task_graph, device)).len();
        let simulated = (0..count as usize).map(simulated).collect();
        (Plan::new(&problem, &solution, ModelRef::default(), Granularity::Op, 0), simulated)
    }

    /// The groups of each stage.
    fn groups(needs: &[&[u32]], devices: &[u32]) -> Vec<Vec<u32>> {
        let graph = graph(needs);
        let stages = stages(&plan(&graph, devices, 2).0, &graph).unwrap();
        stages.iter().map(|stage| stage.groups.iter().map(|group| group.0).collect()).collect()
    }

    #[test]
    fn stages_are_cut_where_devices_communicate() {
        for (needs, devices, want) in [
            // A device that waits in the middle.
            (&[&[][..], &[0], &[1]][..], &[0, 1, 0][..], &[&[0][..], &[1], &[2]][..]),
            // Nothing comes or goes between the last two.
            (&[&[], &[0], &[1]], &[0, 0, 0], &[&[0, 1, 2]]),
            // The input comes first and serves both; the result of 0 comes later, for 2.
            (&[&[], &[], &[0, 1]], &[0, 1, 1], &[&[0], &[1], &[2]]),
            // 0 sends before 1 begins.
            (&[&[], &[0], &[0]], &[0, 0, 1], &[&[0], &[1], &[2]]),
            // A second reader of what has already come needs no stage of its own.
            (&[&[], &[0], &[0, 1]], &[0, 1, 1], &[&[0], &[1, 2]]),
        ] {
            assert_eq!(groups(needs, devices), want, "{needs:?} on {devices:?}");
        }
    }

    /// The laws of stages, on every placement of a small graph on three devices.
    #[test]
    fn stages_are_atomic_and_together_the_plan() {
        let needs: &[&[u32]] = &[&[], &[0], &[], &[1, 2], &[2], &[3, 4]];
        let graph = graph(needs);
        for code in 0..3u32.pow(6) {
            let devices: Vec<u32> = (0..6).map(|i| code / 3u32.pow(i) % 3).collect();
            let (plan, simulated) = plan(&graph, &devices, 3);
            let stages = stages(&plan, &graph).unwrap();
            for (device, entry) in (0u32..).map(DeviceId).zip(&plan.devices) {
                let own = || stages.iter().filter(|stage| stage.device == device);
                let all: Vec<GroupId> = own().flat_map(|stage| stage.groups.clone()).collect();
                assert_eq!(all, entry.order, "{devices:?}: every group once, in the device's order");
                assert_eq!(own().count(), simulated[device.0 as usize], "{devices:?}: as it is simulated");
            }
            let mut made: BTreeSet<TensorId> = graph.inputs().collect();
            for stage in &stages {
                let whole = |tensor: TensorId| stage.part.whole_tensor[tensor.0 as usize];
                let inputs = stage.part.graph.inputs().map(whole);
                assert!(inputs.into_iter().all(|tensor| made.contains(&tensor)), "{devices:?}: complete at its start");
                made.extend(stage.part.graph.outputs.iter().map(|tensor| whole(*tensor)));
                assert_eq!(stage.part.whole_operator.len(), stage.groups.len());
                let last = stage.groups.last().unwrap().0;
                let sends = |group: &&GroupId| {
                    needs
                        .iter()
                        .zip(&devices)
                        .any(|(needs, device)| needs.contains(&group.0) && DeviceId(*device) != stage.device)
                };
                let mut early = stage.groups.iter().filter(|group| group.0 != last);
                assert!(!early.any(|group| sends(&group)), "{devices:?}: only the last group sends");
            }
        }
    }

    #[test]
    fn plans_of_other_models_and_orders_that_wait_are_refused() {
        let graph = graph(&[&[], &[0], &[1]]);
        let (made, _) = plan(&graph, &[0, 1, 0], 2);
        let refused = |change: &dyn Fn(&mut Plan)| {
            let mut plan = made.clone();
            change(&mut plan);
            stages(&plan, &graph).unwrap_err().to_string()
        };
        assert!(refused(&|plan| plan.groups[1].operators[0] = OperatorId(7)).contains("it has no operator 7"));
        assert!(refused(&|plan| plan.groups[1].operators[0] = OperatorId(0)).contains("operator 0 is in two groups"));
        assert!(refused(&|plan| plan.groups[1].operators.clear()).contains("operator 1 (nn.relu) is in no group"));
        assert!(refused(&|plan| plan.devices[0].order.reverse()).contains("group 2 on s0/cpu waits for"));
    }
}
