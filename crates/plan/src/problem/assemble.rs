//! Builds a [`Problem`] from a graph and the costs of its groups: the tensors between groups, the parameters of each group,
//! and the tensors that are views.

use std::collections::HashMap;

use super::{
    Cost, Device, DeviceId, Group, GroupId, Link, LinkId, Objective, ParameterId, Problem, Targets, Tensor,
    TensorIndex,
    activation::activations,
    transfer_format::{Coding, TransferFormat},
};
use edgecut_graph::{Graph, Operator, OperatorId, Origin, StatePair, StateTensors, TensorId, units::Bytes};

/// A group of operators with its cost on each device (`None` where it cannot run).
#[derive(Debug, Clone, PartialEq)]
pub struct CostedGroup {
    pub name: String,
    /// What messages call it.
    pub label: String,
    pub operators: Vec<OperatorId>,
    pub costs: Vec<Option<Cost>>,
}

impl CostedGroup {
    /// A group that only `device`, one of `devices`, can run; messages call it by its name.
    pub fn on(device: DeviceId, devices: usize, name: String, operators: Vec<OperatorId>, cost: Cost) -> CostedGroup {
        let mut costs = vec![None; devices];
        if let Some(entry) = costs.get_mut(device.0 as usize) {
            *entry = Some(cost);
        }
        CostedGroup { label: name.clone(), name, operators, costs }
    }
}

/// Devices, and the links between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    pub devices: Vec<Device>,
    pub links: Vec<Link>,
    /// As [`Problem::routes`].
    pub routes: Vec<Option<LinkId>>,
    pub source: DeviceId,
    pub sink: DeviceId,
}

impl Network {
    /// Lets links between servers carry activations in this format. Links of one server, such as those to a GPU, carry
    /// them as they are.
    pub fn set_transfer_format(&mut self, format: TransferFormat) {
        let count = self.devices.len();
        for (index, link) in self.routes.iter().enumerate() {
            let (from, to) = (&self.devices[index / count], &self.devices[index % count]);
            if let Some(link) = link.filter(|_| from.server != to.server) {
                self.links[link.0 as usize].coding = Coding::of(format);
            }
        }
    }
}

/// Builds the problem. `groups` contain every operator once, in topological order; `is_view` tells which operators are
/// views of their first operand.
///
/// Each group that reads one of `states` holds it like a parameter, twice: its content, and the next one. If it is the only
/// one, and computes the next content, the state is not transferred. Other states come from the source and return to the
/// sink, as the inputs and outputs that they are.
///
/// Tensors of unknown size count as empty.
pub fn assemble(
    graph: &Graph,
    states: &[StatePair],
    groups: Vec<CostedGroup>,
    network: Network,
    is_view: impl Fn(&Operator) -> bool,
    objective: Objective,
    targets: Targets,
) -> Problem {
    let mut group_of: HashMap<OperatorId, GroupId> = HashMap::new();
    for (id, group) in (0u32..).map(GroupId).zip(&groups) {
        group_of.extend(group.operators.iter().map(|operator| (*operator, id)));
    }
    let producer_of = |tensor: TensorId| graph.producer(tensor).and_then(|operator| group_of.get(&operator).copied());
    let size = |tensor: TensorId| graph.tensor(tensor).ty.bytes().unwrap_or(Bytes::ZERO);
    let consumers = graph.consumers();
    let states: Vec<StateTensors> = states.iter().filter_map(|pair| graph.state(pair).ok()).collect();
    let of_states = || states.iter().map(|state| state.input);
    let is_local = |state: &StateTensors| state.is_local(graph, &consumers, |id| group_of.get(&id));
    let kept: Vec<StateTensors> = states.iter().copied().filter(is_local).collect();
    let held: HashMap<TensorId, ParameterId> =
        graph.parameters().chain(of_states()).zip((0u32..).map(ParameterId)).collect();

    let activations = activations(graph, &is_view);
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut index_of: HashMap<TensorId, TensorIndex> = HashMap::new();
    for (id, tensor) in graph.tensors() {
        let producer = producer_of(id);
        let is_output = graph.outputs.contains(&id) && kept.iter().all(|state| state.output != id);
        let crosses = consumers[id.0 as usize].iter().any(|reader| group_of.get(reader).copied() != producer);
        let is_input = matches!(tensor.origin, Origin::Input);
        let stays = held.contains_key(&id) && (!is_input || kept.iter().any(|state| state.input == id));
        if stays || !(crosses || (is_output && !is_input)) {
            continue;
        }
        index_of.insert(id, TensorIndex(tensors.len() as u32));
        tensors.push(Tensor {
            name: tensor.name.to_string(),
            graph: id,
            bytes: size(id),
            activation: activations[id.0 as usize],
            producer,
            view_of: None,
            is_output,
        });
    }

    let mut rows = Vec::with_capacity(groups.len());
    for (id, group) in (0u32..).map(GroupId).zip(groups) {
        let CostedGroup { name, label, operators, costs } = group;
        let (inputs, outputs, parameters) = Default::default();
        let mut row = Group { name, label, operators, inputs, outputs, parameters, costs };
        for operator in &row.operators {
            for operand in graph.operator(*operator).operands() {
                let parameter = held.get(&operand).filter(|id| !row.parameters.contains(id));
                row.parameters.extend(parameter);
                let read = index_of.get(&operand).filter(|index| !row.inputs.contains(index));
                row.inputs.extend(read.filter(|_| producer_of(operand) != Some(id)));
            }
            row.outputs.extend(graph.operator(*operator).outputs.iter().filter_map(|t| index_of.get(t)));
        }
        for output in &row.outputs {
            let viewed = viewed_tensor(graph, tensors[output.0 as usize].graph, &row.operators, &is_view);
            tensors[output.0 as usize].view_of =
                index_of.get(&viewed).filter(|index| row.inputs.contains(index)).copied();
        }
        rows.push(row);
    }
    let parameters = graph.parameters().map(size).chain(of_states().map(|state| size(state) + size(state))).collect();
    let states = of_states().filter_map(|state| held.get(&state).copied()).collect();
    let Network { devices, links, routes, source, sink } = network;
    Problem { groups: rows, tensors, parameters, states, devices, links, routes, source, sink, objective, targets }
}

/// The tensor whose storage `tensor` has, looking through the views among `operators`.
fn viewed_tensor(
    graph: &Graph,
    mut tensor: TensorId,
    operators: &[OperatorId],
    is_view: impl Fn(&Operator) -> bool,
) -> TensorId {
    while let Some(id) = graph.producer(tensor).filter(|id| operators.contains(id)) {
        let operator = graph.operator(id);
        match operator.operands().next() {
            Some(operand) if is_view(operator) => tensor = operand,
            _ => break,
        }
    }
    tensor
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, TensorType, units::Micros};

    /// One device.
    fn network() -> Network {
        let device =
            Device { server: "s".into(), name: "cpu".into(), address: None, memory: None, ..Device::default() };
        Network { devices: vec![device], links: vec![], routes: vec![None], source: DeviceId(0), sink: DeviceId(0) }
    }

    fn group(operators: &[u32]) -> CostedGroup {
        let cost = Cost { time: Micros(1.0), ..Cost::default() };
        CostedGroup {
            name: "g".into(),
            label: "g".into(),
            operators: operators.iter().map(|o| OperatorId(*o)).collect(),
            costs: vec![Some(cost)],
        }
    }

    fn add(graph: &mut Graph, name: &str, operands: &[TensorId]) -> TensorId {
        let operator = Operator::new(name, operands.iter().copied());
        let id = graph.add_operator(operator, &[TensorType::of(DType::F32, &[4])]);
        graph.operator(id).outputs[0]
    }

    #[test]
    fn tensors_between_groups_parameters_and_views_are_found() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let w = graph.add_tensor("w", ty, Origin::Parameter);
        let a = add(&mut graph, "add", &[x, w]);
        let b = add(&mut graph, "relu", &[a]);
        let c = add(&mut graph, "reshape", &[b]);
        let d = add(&mut graph, "add", &[c, w]);
        graph.outputs.push(d);
        let groups = vec![group(&[0, 1]), group(&[2]), group(&[3])];
        let is_view = |o: &Operator| o.name == "reshape";
        let problem = assemble(&graph, &[], groups, network(), is_view, Objective::Latency, Targets::default());
        problem.check().unwrap();
        let named: Vec<TensorId> = problem.tensors.iter().map(|t| t.graph).collect();
        assert_eq!(named, [x, b, c, d], "a is internal to its group");
        assert_eq!(problem.tensors[2].view_of, Some(TensorIndex(1)));
        assert_eq!(problem.groups[0].parameters, problem.groups[2].parameters);
        assert_eq!(problem.groups[1].parameters, []);
        assert_eq!(problem.parameters, [Bytes(16)]);
    }

    #[test]
    fn states_are_held_where_they_are_read() {
        let mut graph = Graph::new();
        let input = |graph: &mut Graph, name| graph.add_tensor(name, TensorType::of(DType::F32, &[4]), Origin::Input);
        let (x, past, h) = (input(&mut graph, "x"), input(&mut graph, "past"), input(&mut graph, "h"));
        let present = add(&mut graph, "f", &[x, past]);
        let y = add(&mut graph, "g", &[present, h]);
        let next = add(&mut graph, "relu", &[y]);
        for (id, name) in [(present, "present"), (next, "next")] {
            graph.tensor_mut(id).name = name.into();
        }
        graph.outputs = vec![y, present, next];
        let states = ["past=present", "h=next"].map(|text| text.parse().unwrap());
        let groups = || vec![group(&[0]), group(&[1]), group(&[2])];
        let targets = Targets::default();
        let problem = assemble(&graph, &states, groups(), network(), |_| false, Objective::Latency, targets);
        problem.check().unwrap();
        assert_eq!((&problem.parameters[..], problem.states.len()), (&[Bytes(32), Bytes(32)][..], 2), "each twice");
        let parameters: Vec<_> = problem.groups.iter().map(|group| &group.parameters[..]).collect();
        assert_eq!(parameters, [&[ParameterId(0)][..], &[ParameterId(1)], &[]]);
        // The group that reads `h` does not compute its next content.
        let tensors: Vec<_> = problem.tensors.iter().map(|tensor| (tensor.graph, tensor.is_output)).collect();
        assert_eq!(tensors, [(x, false), (h, false), (present, false), (y, true), (next, true)]);
    }
}
