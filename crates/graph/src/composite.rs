//! Inlines composite operators: replaces them by their decompositions, for engines and formats without such an
//! operator.

use std::collections::HashMap;

use crate::{
    graph::{Graph, Operator, Origin},
    id::{OperatorId, TensorId},
    types::TensorType,
};

/// A graph whose composite operators are replaced by their decompositions.
#[derive(Debug, Clone)]
pub struct InlinedGraph {
    pub graph: Graph,
    /// For each operator of the original graph, the operators that it became, in program order.
    pub operators: Vec<Vec<OperatorId>>,
    /// For each operator of `graph`, the operator of the original graph that it belongs to.
    pub whole_operator: Vec<OperatorId>,
    /// For each tensor of `graph`, the tensor of the original graph; `None` inside a composite.
    pub whole_tensor: Vec<Option<TensorId>>,
}

/// Replaces the composite operators of `graph` that `is_replaced` by their decompositions. Inputs, parameters and constants
/// keep their order, results their names. A result that is an operand unchanged becomes that operand.
pub fn inline_composites(graph: &Graph, is_replaced: impl Fn(&Operator) -> bool) -> InlinedGraph {
    let mut inlined = InlinedGraph {
        graph: Graph::new(),
        operators: Vec::with_capacity(graph.operators().len()),
        whole_operator: Vec::with_capacity(graph.operators().len()),
        whole_tensor: Vec::with_capacity(graph.tensors().len()),
    };
    let mut moved: HashMap<TensorId, TensorId> = HashMap::with_capacity(graph.tensors().len());
    for (id, tensor) in graph.tensors().filter(|(id, _)| graph.producer(*id).is_none()) {
        moved.insert(id, inlined.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone()));
        inlined.whole_tensor.push(Some(id));
    }
    for (id, operator) in graph.operators() {
        let results = match operator.decomposition.as_deref().filter(|_| is_replaced(operator)) {
            Some(decomposition) => inlined.replace(graph, id, decomposition, &moved),
            None => inlined.copy(graph, id, &moved),
        };
        moved.extend(operator.outputs.iter().copied().zip(results));
    }
    inlined.graph.outputs = graph.outputs.iter().map(|output| moved[output]).collect();
    inlined
}

impl InlinedGraph {
    /// `groups` of operators of the original graph as groups of operators of this one.
    pub fn groups(&self, groups: &[Vec<OperatorId>]) -> Vec<Vec<OperatorId>> {
        let inside = |id: &OperatorId| self.operators[id.0 as usize].iter().copied();
        groups.iter().map(|group| group.iter().flat_map(inside).collect()).collect()
    }

    /// The tensor of the original graph that `tensor` is; `None` inside a composite.
    pub fn whole_tensor(&self, tensor: TensorId) -> Option<TensorId> {
        self.whole_tensor.get(tensor.0 as usize).copied().flatten()
    }

    fn copy(&mut self, graph: &Graph, id: OperatorId, moved: &HashMap<TensorId, TensorId>) -> Vec<TensorId> {
        let new = self.graph.copy_operator(graph, id, |tensor| moved[&tensor]);
        let original = graph.operator(id);
        self.whole_tensor.extend(original.outputs.iter().copied().map(Some));
        self.whole_operator.push(id);
        self.operators.push(vec![new]);
        self.graph.operator(new).outputs.clone()
    }

    /// Adds the operators of `decomposition` for the composite `id` of `graph`. Returns its results.
    fn replace(
        &mut self,
        graph: &Graph,
        id: OperatorId,
        decomposition: &Graph,
        moved: &HashMap<TensorId, TensorId>,
    ) -> Vec<TensorId> {
        let composite = graph.operator(id);
        let operands = composite.operands().map(|operand| moved[&operand]);
        let mut inner: HashMap<TensorId, TensorId> = decomposition.inputs().zip(operands).collect();
        for (constant, tensor) in decomposition.tensors() {
            if matches!(tensor.origin, Origin::Constant(_)) {
                let new = self.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone());
                inner.insert(constant, new);
                self.whole_tensor.push(None);
            }
        }
        let mut became = Vec::with_capacity(decomposition.operators().len());
        for (part, operator) in decomposition.operators() {
            let new = self.graph.copy_operator(decomposition, part, |tensor| inner[&tensor]);
            let outputs = self.graph.operator(new).outputs.clone();
            self.whole_tensor.extend(outputs.iter().map(|_| None));
            self.whole_operator.push(id);
            inner.extend(operator.outputs.iter().copied().zip(outputs));
            became.push(new);
        }
        self.operators.push(became);
        let results: Vec<TensorId> = decomposition.outputs.iter().map(|output| inner[output]).collect();
        for (result, whole) in results.iter().zip(&composite.outputs) {
            let known = &mut self.whole_tensor[result.0 as usize];
            if self.graph.producer(*result).is_some() && known.is_none() {
                *known = Some(*whole);
                self.graph.tensor_mut(*result).name = graph.tensor(*whole).name.clone();
            }
        }
        results
    }
}

/// Whether `decomposition` fits an operator with operands and results of these types.
pub(crate) fn is_decomposition(decomposition: &Graph, operands: &[&TensorType], results: &[&TensorType]) -> bool {
    let ty = |id: TensorId| &decomposition.tensor(id).ty;
    decomposition.inputs().map(ty).eq(operands.iter().copied())
        && decomposition.outputs.iter().copied().map(ty).eq(results.iter().copied())
        && decomposition.operators().all(|(_, operator)| operator.decomposition.is_none())
        && decomposition.tensors().all(|(_, tensor)| !matches!(tensor.origin, Origin::Parameter))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{DType, TensorData};

    fn unary(graph: &mut Graph, name: &str, of: &[TensorId]) -> TensorId {
        let id = graph.add_operator(Operator::new(name, of.iter().copied()), &[TensorType::of(DType::F32, &[4])]);
        graph.operator(id).outputs[0]
    }

    /// y = my.silu(x, w), a composite of x · sigmoid(x · w) · 2, with its first operand as a second result.
    fn graph() -> Graph {
        let ty = TensorType::of(DType::F32, &[4]);
        let mut inner = Graph::new();
        let [x, w] = ["a", "b"].map(|name| inner.add_tensor(name, ty.clone(), Origin::Input));
        let two = TensorData::new(DType::F32, [4], vec![0; 16]).unwrap();
        let two = inner.add_tensor("two", ty.clone(), Origin::Constant(two));
        let scaled = unary(&mut inner, "multiply", &[x, w]);
        let gate = unary(&mut inner, "sigmoid", &[scaled]);
        let gated = unary(&mut inner, "multiply", &[x, gate]);
        inner.outputs = vec![unary(&mut inner, "multiply", &[gated, two]), x];
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let w = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        let first = unary(&mut graph, "exp", &[x]);
        let composite = Operator::new("my.silu", [first, w]).with_decomposition(Arc::new(inner));
        let id = graph.add_operator(composite, &[ty.clone(), ty]);
        let [y, same] = graph.operator(id).outputs[..] else { unreachable!() };
        graph.tensor_mut(y).name = "y".into();
        let last = unary(&mut graph, "tanh", &[y]);
        graph.outputs = vec![last, y, same];
        graph
    }

    #[test]
    fn a_composite_becomes_its_operators() {
        let graph = graph();
        let inlined = inline_composites(&graph, |_| true);
        let names: Vec<&str> = inlined.graph.operators().map(|(_, operator)| operator.name.as_str()).collect();
        assert_eq!(names, ["exp", "multiply", "sigmoid", "multiply", "multiply", "tanh"]);
        let ids = |ids: &[u32]| ids.iter().copied().map(OperatorId).collect::<Vec<_>>();
        assert_eq!(inlined.operators, [ids(&[0]), ids(&[1, 2, 3, 4]), ids(&[5])]);
        assert_eq!(inlined.groups(&[ids(&[0, 1]), ids(&[2])]), [ids(&[0, 1, 2, 3, 4]), ids(&[5])]);
        assert_eq!(inlined.whole_operator, ids(&[0, 1, 1, 1, 1, 2]));
        // The result that is an operand is what computes that operand.
        let outputs: Vec<Option<TensorId>> =
            inlined.graph.outputs.iter().map(|output| inlined.whole_tensor(*output)).collect();
        let first = graph.operator(OperatorId(0)).outputs[0];
        assert_eq!(outputs, [Some(graph.outputs[0]), Some(graph.outputs[1]), Some(first)]);
        assert_eq!(inlined.graph.tensor(inlined.graph.outputs[1]).name, "y");
        let kept = inline_composites(&graph, |_| false);
        assert_eq!(kept.graph.operators().len(), 3);
    }

    #[test]
    fn decompositions_are_serialized_and_checked() {
        let graph = graph();
        let text = serde_json::to_string(&graph).unwrap();
        assert_eq!(serde_json::from_str::<Graph>(&text).unwrap(), graph);
        let mut wrong = graph.clone();
        let inner = wrong.operator(OperatorId(1)).decomposition.clone().unwrap();
        let mut short = Graph::clone(&inner);
        short.outputs.pop();
        let mut nested = Graph::clone(&inner);
        nested.operator_mut(OperatorId(0)).decomposition = Some(inner);
        for bad in [short, nested] {
            wrong.operator_mut(OperatorId(1)).decomposition = Some(Arc::new(bad));
            let text = serde_json::to_string(&wrong).unwrap();
            let error = serde_json::from_str::<Graph>(&text).unwrap_err().to_string();
            assert!(error.contains("decomposition"), "{error}");
        }
    }
}
