//! Parameter-only computations, such as the transposition of a weight, which an engine evaluates once when it loads its
//! parameters: they are attached to the group that reads their result.

use std::collections::{BTreeSet, HashMap};

use crate::{
    graph::{Graph, Origin},
    id::{OperatorId, TensorId},
};

/// By operator: whether it depends on parameters alone, so that it is evaluated once, when they are loaded.
pub fn constant_operators(graph: &Graph) -> Vec<bool> {
    let mut constant = vec![false; graph.operators().len()];
    for (id, operator) in graph.operators() {
        constant[id.0 as usize] = operator.operands().all(|tensor| is_constant(graph, &constant, tensor));
    }
    constant
}

/// Whether `tensor` is a parameter or depends on parameters alone; `constant` are the [`constant_operators`].
pub fn is_constant(graph: &Graph, constant: &[bool], tensor: TensorId) -> bool {
    match graph.tensor(tensor).origin {
        Origin::Parameter | Origin::Constant(_) => true,
        Origin::Operator { operator, .. } => constant[operator.0 as usize],
        Origin::Input => false,
    }
}

/// Merges every group that depends on parameters alone into the single group that reads it, if there is exactly one, so
/// that a convolution and the transformation of its weight are loaded, measured and placed together.
///
/// `groups` are in topological order, and stay so. The effect is that of TVM's `FoldConstant`, which evaluates such
/// operators before fusion once parameters are bound.
pub fn attach_constants(graph: &Graph, groups: Vec<Vec<OperatorId>>) -> Vec<Vec<OperatorId>> {
    let mut group_of: HashMap<OperatorId, usize> = HashMap::new();
    for (index, group) in groups.iter().enumerate() {
        group_of.extend(group.iter().map(|operator| (*operator, index)));
    }
    let mut readers: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); groups.len()];
    let mut is_constant = vec![false; groups.len()];
    for (index, group) in groups.iter().enumerate() {
        let operands = || group.iter().flat_map(|id| graph.operator(*id).operands());
        let producers = || operands().filter_map(|t| graph.producer(t)).filter_map(|id| group_of.get(&id).copied());
        let reads_input = operands().any(|t| matches!(graph.tensor(t).origin, Origin::Input));
        is_constant[index] = !reads_input && producers().all(|producer| producer == index || is_constant[producer]);
        for producer in producers().filter(|producer| *producer != index) {
            readers[producer].insert(index);
        }
    }
    let mut target: Vec<usize> = (0..groups.len()).collect();
    for index in (0..groups.len()).rev() {
        let returned =
            groups[index].iter().flat_map(|id| &graph.operator(*id).outputs).any(|t| graph.outputs.contains(t));
        let into: BTreeSet<usize> = readers[index].iter().map(|reader| target[*reader]).collect();
        if let (true, false, 1, Some(reader)) = (is_constant[index], returned, into.len(), into.first()) {
            target[index] = *reader;
        }
    }
    let mut attached: Vec<Vec<OperatorId>> = vec![Vec::new(); groups.len()];
    for (group, into) in groups.into_iter().zip(target) {
        attached[into].extend(group);
    }
    attached.retain(|group| !group.is_empty());
    attached.iter_mut().for_each(|group| group.sort_unstable());
    attached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operator, TensorId, TensorType};

    fn add(graph: &mut Graph, operands: &[TensorId]) -> TensorId {
        let operator = Operator::new("add", operands.iter().copied());
        let id = graph.add_operator(operator, &[TensorType::of(DType::F32, &[4])]);
        graph.operator(id).outputs[0]
    }

    #[test]
    fn parameter_only_groups_join_their_single_reader() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let w = graph.add_tensor("w", ty, Origin::Parameter);
        let own = add(&mut graph, &[w, w]); // 0: read by 1 alone
        let chained = add(&mut graph, &[own, w]); // 1: read by 3 alone
        let shared = add(&mut graph, &[w, w]); // 2: read by 3 and 4
        let a = add(&mut graph, &[x, chained, shared]); // 3
        let b = add(&mut graph, &[a, shared]); // 4
        let returned = add(&mut graph, &[w, w]); // 5
        graph.outputs = vec![b, returned];
        let alone = graph.operators().map(|(id, _)| vec![id]).collect();
        let found = attach_constants(&graph, alone);
        let found: Vec<Vec<u32>> = found.iter().map(|g| g.iter().map(|id| id.0).collect()).collect();
        assert_eq!(found, [vec![2], vec![0, 1, 3], vec![4], vec![5]]);
        assert_eq!(constant_operators(&graph), [true, true, true, false, false, true]);
    }
}
