//! The invariants of a graph that was read from outside, checked before anything indexes by its ids.

use serde::Deserialize;

use super::{Graph, Operator, OperatorId, Origin, Tensor, TensorId};

/// Why a serialized graph is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    #[error("operator {0} reads tensor {1}, which is not made before it")]
    Operand(u32, u32),
    #[error("tensor {1} and operator {0} do not agree on who makes it")]
    Producer(u32, u32),
    #[error("output {0} is no tensor of the graph")]
    Output(u32),
}

/// A graph as it is serialized, of which nothing is believed yet.
#[derive(Deserialize)]
pub(super) struct Unchecked {
    tensors: Vec<Tensor>,
    operators: Vec<Operator>,
    outputs: Vec<TensorId>,
}

impl TryFrom<Unchecked> for Graph {
    type Error = GraphError;

    fn try_from(text: Unchecked) -> Result<Graph, GraphError> {
        let Unchecked { tensors, operators, outputs } = text;
        for (id, operator) in (0u32..).zip(&operators) {
            for operand in operator.operands() {
                let made_before = tensors.get(operand.0 as usize).is_some_and(|tensor| match tensor.origin {
                    Origin::Operator { operator: producer, .. } => producer.0 < id,
                    _ => true,
                });
                if !made_before {
                    return Err(GraphError::Operand(id, operand.0));
                }
            }
            for (index, output) in (0u32..).zip(&operator.outputs) {
                let origin = tensors.get(output.0 as usize).map(|tensor| &tensor.origin);
                if origin != Some(&Origin::Operator { operator: OperatorId(id), index }) {
                    return Err(GraphError::Producer(id, output.0));
                }
            }
        }
        for (id, tensor) in (0u32..).zip(&tensors) {
            if let Origin::Operator { operator, index } = tensor.origin {
                let made = operators.get(operator.0 as usize).and_then(|o| o.outputs.get(index as usize));
                if made != Some(&TensorId(id)) {
                    return Err(GraphError::Producer(operator.0, id));
                }
            }
        }
        match outputs.iter().find(|output| output.0 as usize >= tensors.len()) {
            Some(output) => Err(GraphError::Output(output.0)),
            None => Ok(Graph { tensors, operators, outputs }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DType, TensorType, tests::relu};
    use super::*;

    #[test]
    fn a_graph_comes_back_and_a_bent_one_does_not() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let a = graph.add_operator(relu(x), std::slice::from_ref(&ty));
        graph.add_operator(relu(graph.operator(a).outputs[0]), &[ty]);
        graph.outputs.push(TensorId(2));
        let text = serde_json::to_string(&graph).unwrap();
        assert_eq!(serde_json::from_str::<Graph>(&text).unwrap(), graph);
        for (was, is, why) in [
            (r#""args":[{"Tensor":0}]"#, r#""args":[{"Tensor":1}]"#, "not made before"),
            (r#""args":[{"Tensor":0}]"#, r#""args":[{"Tensor":9}]"#, "not made before"),
            (r#""outputs":[1]"#, r#""outputs":[2]"#, "do not agree"),
            (r#""outputs":[1]"#, r#""outputs":[]"#, "do not agree"),
            (r#""outputs":[2]}"#, r#""outputs":[3]}"#, "no tensor"),
        ] {
            assert!(text.contains(was), "{was} in {text}");
            let bent = text.replacen(was, is, 1);
            let bent = if was.ends_with('}') { format!("{}{is}", text.rsplit_once(was).unwrap().0) } else { bent };
            let error = serde_json::from_str::<Graph>(&bent).unwrap_err();
            assert!(error.to_string().contains(why), "{bent}: {error}");
        }
    }
}
