//! Removes what the outputs do not need: folded shape arithmetic leaves operators behind.

use std::collections::{BTreeSet, HashMap, HashSet};

use edgecut_graph::{Graph, OperatorId, Origin, TensorId};

/// `graph` without operators and constants that no output depends on. All inputs stay: they are the model's signature.
pub(crate) fn live(graph: &Graph) -> Graph {
    let mut operators: BTreeSet<OperatorId> = BTreeSet::new();
    let mut tensors: HashSet<TensorId> = graph.outputs.iter().copied().collect();
    let mut pending: Vec<TensorId> = graph.outputs.clone();
    while let Some(tensor) = pending.pop() {
        let Some(producer) = graph.producer(tensor).filter(|producer| operators.insert(*producer)) else { continue };
        for operand in graph.operator(producer).operands() {
            if tensors.insert(operand) {
                pending.push(operand);
            }
        }
    }
    let mut kept = Graph::new();
    let mut moved: HashMap<TensorId, TensorId> = HashMap::new();
    for (id, tensor) in graph.tensors() {
        let stays = match tensor.origin {
            Origin::Input | Origin::Parameter => true,
            Origin::Constant(_) => tensors.contains(&id),
            Origin::Operator { .. } => false,
        };
        if stays {
            moved.insert(id, kept.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone()));
        }
    }
    for id in operators {
        let copy = kept.copy_operator(graph, id, |tensor| moved.get(&tensor).copied().unwrap_or(tensor));
        let outputs = graph.operator(id).outputs.iter().copied();
        moved.extend(outputs.zip(kept.operator(copy).outputs.clone()));
    }
    kept.outputs = graph.outputs.iter().filter_map(|tensor| moved.get(tensor).copied()).collect();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, TensorType};

    #[test]
    fn only_what_outputs_need_and_all_inputs_stay() {
        let ty = TensorType::of(DType::F32, &[4]);
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        graph.add_tensor("unused", ty.clone(), Origin::Input);
        let unary = |graph: &mut Graph, name: &str| {
            let id = graph.add_operator(Operator::new(name, [x]), std::slice::from_ref(&ty));
            graph.operator(id).outputs[0]
        };
        unary(&mut graph, "exp");
        let y = unary(&mut graph, "tanh");
        graph.outputs = vec![y, x];
        let kept = live(&graph);
        assert_eq!(kept.operators().map(|(_, operator)| operator.name.as_str()).collect::<Vec<_>>(), ["tanh"]);
        assert_eq!((kept.inputs().count(), kept.outputs.len()), (2, 2));
        assert_eq!(kept.tensor(kept.outputs[1]).name, "x");
    }
}
