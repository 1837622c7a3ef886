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

impl Part {
    /// The part of `whole` that consists of `operators`, in program order.
    pub fn cut(whole: &Graph, operators: &[OperatorId]) -> Part {
        let chosen: BTreeSet<OperatorId> = operators.iter().copied().collect();
        let mut needed_outside: BTreeSet<TensorId> = whole.outputs.iter().copied().collect();
        for (id, operator) in whole.operators() {
            if !chosen.contains(&id) {
                needed_outside.extend(operator.operands());
            }
        }
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
        let part = Part::cut(&whole, &[OperatorId(2), OperatorId(1)]);
        assert_eq!(part.whole_operator, vec![OperatorId(1), OperatorId(2)]);
        assert_eq!(part.graph.inputs().count(), 1);
        let out: Vec<_> = part.graph.outputs.iter().map(|t| part.whole_tensor[t.0 as usize]).collect();
        assert_eq!(out, whole.operator(OperatorId(2)).outputs);
    }
}
