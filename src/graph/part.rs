//! A part of a graph as a graph of its own: what a device runs, what a fused group is, what one
//! operator is when it is measured alone.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::{Graph, OperatorId, Origin, TensorId};

/// Some operators of a whole graph, cut out.
///
/// Tensors that other operators make become inputs; tensors that others need, or that the whole
/// returns, become outputs. Parameters and constants come along.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub graph: Graph,
    /// For each tensor of `graph` the tensor of the whole that it is.
    pub whole_tensor: Vec<TensorId>,
    /// For each operator of `graph` the operator of the whole that it is.
    pub whole_operator: Vec<OperatorId>,
}

impl Part {
    /// Cuts `operators` out of `whole`, keeping program order whatever order they are given in.
    pub fn cut(whole: &Graph, operators: &[OperatorId]) -> Part {
        let chosen: BTreeSet<OperatorId> = operators.iter().copied().collect();
        let mut needed_outside: BTreeSet<TensorId> = whole.outputs.iter().copied().collect();
        for (id, operator) in whole.operators() {
            if !chosen.contains(&id) {
                needed_outside.extend(operator.operands());
            }
        }
        let mut part = Part { graph: Graph::new(), whole_tensor: Vec::new(), whole_operator: Vec::new() };
        let mut here: HashMap<TensorId, TensorId> = HashMap::new();
        for id in chosen {
            let operator = whole.operator(id);
            for operand in operator.operands() {
                here.entry(operand).or_insert_with(|| {
                    let tensor = whole.tensor(operand);
                    let origin = match &tensor.origin {
                        Origin::Operator { .. } => Origin::Input,
                        other => other.clone(),
                    };
                    part.whole_tensor.push(operand);
                    part.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), origin)
                });
            }
            let new = part.graph.copy_operator(whole, id, |t| here[&t]);
            part.whole_operator.push(id);
            for (old, new) in operator.outputs.iter().zip(part.graph.operator(new).outputs.clone()) {
                part.whole_tensor.push(*old);
                here.insert(*old, new);
                if needed_outside.contains(old) {
                    part.graph.outputs.push(new);
                }
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DType, TensorType, tests::relu};
    use super::*;

    #[test]
    fn a_cut_in_a_chain_has_one_input_and_one_output() {
        let mut whole = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let mut at = whole.add_tensor("x", ty.clone(), Origin::Input);
        for _ in 0..4 {
            let id = whole.add_operator(relu(at), std::slice::from_ref(&ty));
            at = whole.operator(id).outputs[0];
        }
        whole.outputs.push(at);
        let part = Part::cut(&whole, &[OperatorId(2), OperatorId(1)]);
        assert_eq!(part.whole_operator, vec![OperatorId(1), OperatorId(2)]);
        assert_eq!(part.graph.inputs().count(), 1);
        let out: Vec<_> = part.graph.outputs.iter().map(|t| part.whole_tensor[t.0 as usize]).collect();
        assert_eq!(out, whole.operator(OperatorId(2)).outputs);
    }
}
