//! A subgraph as a graph: what a device runs, a fused group, or a single operator under measurement.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::{
    graph::{Graph, Origin},
    id::{OperatorId, TensorId},
};

/// A set of operators of a whole graph, as a graph.
///
/// Tensors that operators outside the set produce become inputs; tensors that operators outside the set read, or that
/// the whole graph returns, become outputs. Parameters and constants are copied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub graph: Graph,
    /// By tensor of `graph`: the corresponding tensor of the whole graph.
    pub whole_tensor: Vec<TensorId>,
    /// By operator of `graph`: the corresponding operator of the whole graph.
    pub whole_operator: Vec<OperatorId>,
}

/// A graph that many parts are cut from: a cut takes time in proportion to the part, not to the graph.
#[derive(Debug, Clone)]
pub struct Parts<'g> {
    whole: &'g Graph,
    /// By tensor: how often operators read it or the graph returns it.
    reads: Vec<u32>,
}

impl Part {
    /// The part of `whole` that consists of `operators`, in program order. For many parts of a graph, see [`Parts`].
    pub fn cut(whole: &Graph, operators: &[OperatorId]) -> Part {
        Parts::of(whole).cut(operators)
    }
}

impl<'g> Parts<'g> {
    pub fn of(whole: &'g Graph) -> Parts<'g> {
        let mut reads = vec![0; whole.tensors().len()];
        let operands = whole.operators().flat_map(|(_, operator)| operator.operands());
        operands.chain(whole.outputs.iter().copied()).for_each(|tensor| reads[tensor.0 as usize] += 1);
        Parts { whole, reads }
    }

    /// The graph that parts are cut from.
    pub fn whole(&self) -> &'g Graph {
        self.whole
    }

    /// The part that consists of `operators`, in program order.
    pub fn cut(&self, operators: &[OperatorId]) -> Part {
        let whole = self.whole;
        let chosen: BTreeSet<OperatorId> = operators.iter().copied().collect();
        let mut reads_inside: HashMap<TensorId, u32> = HashMap::new();
        for operand in chosen.iter().flat_map(|id| whole.operator(*id).operands()) {
            *reads_inside.entry(operand).or_default() += 1;
        }
        let is_read_outside =
            |tensor: &TensorId| self.reads[tensor.0 as usize] > reads_inside.get(tensor).copied().unwrap_or_default();
        let mut part = Part { graph: Graph::new(), whole_tensor: Vec::new(), whole_operator: Vec::new() };
        let mut local: HashMap<TensorId, TensorId> = HashMap::new();
        for id in chosen {
            let operator = whole.operator(id);
            for operand in operator.operands() {
                local.entry(operand).or_insert_with(|| {
                    let tensor = whole.tensor(operand);
                    let origin = match &tensor.origin {
                        Origin::Operator { .. } => Origin::Input,
                        other => other.clone(),
                    };
                    part.whole_tensor.push(operand);
                    part.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), origin)
                });
            }
            let new = part.graph.copy_operator(whole, id, |t| local[&t]);
            part.whole_operator.push(id);
            for (old, new) in operator.outputs.iter().zip(part.graph.operator(new).outputs.clone()) {
                part.whole_tensor.push(*old);
                local.insert(*old, new);
                if is_read_outside(old) {
                    part.graph.outputs.push(new);
                }
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operator, TensorType};

    #[test]
    fn a_segment_of_a_chain_has_one_input_and_one_output() {
        let mut whole = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let mut at = whole.add_tensor("x", ty.clone(), Origin::Input);
        for _ in 0..4 {
            let id = whole.add_operator(Operator::new("nn.relu", [at]), std::slice::from_ref(&ty));
            at = whole.operator(id).outputs[0];
        }
        whole.outputs.push(at);
        let parts = Parts::of(&whole);
        let part = parts.cut(&[OperatorId(2), OperatorId(1)]);
        assert_eq!(part, Part::cut(&whole, &[OperatorId(1), OperatorId(2), OperatorId(1)]));
        assert_eq!(part.whole_operator, vec![OperatorId(1), OperatorId(2)]);
        assert_eq!(part.graph.inputs().count(), 1);
        let out: Vec<_> = part.graph.outputs.iter().map(|t| part.whole_tensor[t.0 as usize]).collect();
        assert_eq!(out, whole.operator(OperatorId(2)).outputs);
    }

    #[test]
    fn outputs_are_what_is_read_outside_or_returned() {
        let mut whole = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = whole.add_tensor("x", ty.clone(), Origin::Input);
        let mut add = |name, args: [TensorId; 2]| {
            let id = whole.add_operator(Operator::new(name, args), std::slice::from_ref(&ty));
            whole.operator(id).outputs[0]
        };
        // `a` is read twice by one operator, `b` also outside the part, `c` is returned and read, `d` is read by nothing.
        let a = add("add", [x, x]);
        let b = add("multiply", [a, a]);
        let c = add("add", [b, a]);
        let d = add("subtract", [c, x]);
        let e = add("add", [b, x]);
        whole.outputs = vec![e, c];
        let part = Parts::of(&whole).cut(&[0, 1, 2, 3].map(OperatorId));
        let outputs: Vec<TensorId> = part.graph.outputs.iter().map(|t| part.whole_tensor[t.0 as usize]).collect();
        assert_eq!(outputs, [b, c]);
        assert!(part.whole_tensor.contains(&d));
    }
}
