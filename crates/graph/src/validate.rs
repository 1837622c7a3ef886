//! Validates the invariants of a deserialized graph before anything indexes by its ids.

use serde::{Deserialize, Deserializer, de::Error};

use crate::{
    composite::is_decomposition,
    graph::{Graph, Operator, Origin, Tensor},
    id::{OperatorId, TensorId},
    types::TensorType,
};

/// Why a serialized graph is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    #[error("operator {0} reads tensor {1}, which is not defined before it")]
    Operand(u32, u32),
    #[error("operator {0} and tensor {1} disagree about the producer of the tensor")]
    Producer(u32, u32),
    #[error("the decomposition of operator {0} does not compute its results from its operands")]
    Decomposition(u32),
    #[error("output {0} is not a tensor of the graph")]
    Output(u32),
}

/// A graph as serialized, not validated.
#[derive(Deserialize)]
struct Unchecked {
    tensors: Vec<Tensor>,
    operators: Vec<Operator>,
    outputs: Vec<TensorId>,
}

impl<'de> Deserialize<'de> for Graph {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Graph, D::Error> {
        Graph::try_from(Unchecked::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl TryFrom<Unchecked> for Graph {
    type Error = GraphError;

    fn try_from(unchecked: Unchecked) -> Result<Graph, GraphError> {
        let Unchecked { tensors, operators, outputs } = unchecked;
        for (id, operator) in (0u32..).zip(&operators) {
            for operand in operator.operands() {
                let defined = tensors.get(operand.0 as usize).is_some_and(|tensor| match tensor.origin {
                    Origin::Operator { operator: producer, .. } => producer.0 < id,
                    _ => true,
                });
                if !defined {
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
                let output = operators.get(operator.0 as usize).and_then(|o| o.outputs.get(index as usize));
                if output != Some(&TensorId(id)) {
                    return Err(GraphError::Producer(operator.0, id));
                }
            }
        }
        let types = |ids: &mut dyn Iterator<Item = TensorId>| -> Vec<&TensorType> {
            ids.filter_map(|id| tensors.get(id.0 as usize)).map(|tensor| &tensor.ty).collect()
        };
        for (id, operator) in (0u32..).zip(&operators) {
            let (operands, results) = (types(&mut operator.operands()), types(&mut operator.outputs.iter().copied()));
            let fits = |decomposition: &Graph| is_decomposition(decomposition, &operands, &results);
            if !operator.decomposition.as_deref().is_none_or(fits) {
                return Err(GraphError::Decomposition(id));
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
    use super::*;
    use crate::{DType, TensorType};

    fn relu(of: TensorId) -> Operator {
        Operator::new("nn.relu", [of])
    }

    #[test]
    fn graphs_round_trip_and_invalid_ones_are_refused() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let a = graph.add_operator(relu(x), std::slice::from_ref(&ty));
        graph.add_operator(relu(graph.operator(a).outputs[0]), &[ty]);
        graph.outputs.push(TensorId(2));
        let text = serde_json::to_string(&graph).unwrap();
        assert_eq!(serde_json::from_str::<Graph>(&text).unwrap(), graph);
        for (was, is, why) in [
            (r#""args":[{"Tensor":0}]"#, r#""args":[{"Tensor":1}]"#, "not defined before"),
            (r#""args":[{"Tensor":0}]"#, r#""args":[{"Tensor":9}]"#, "not defined before"),
            (r#""outputs":[1]"#, r#""outputs":[2]"#, "disagree"),
            (r#""outputs":[1]"#, r#""outputs":[]"#, "disagree"),
            (r#""outputs":[2]}"#, r#""outputs":[3]}"#, "not a tensor"),
        ] {
            assert!(text.contains(was), "{was} in {text}");
            let edited = text.replacen(was, is, 1);
            let edited = if was.ends_with('}') { format!("{}{is}", text.rsplit_once(was).unwrap().0) } else { edited };
            let error = serde_json::from_str::<Graph>(&edited).unwrap_err();
            assert!(error.to_string().contains(why), "{edited}: {error}");
        }
    }
}
