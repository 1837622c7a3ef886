//! Composite operators that can no longer be written as the nodes that they were read from: their decompositions are
//! written.

use std::collections::HashMap;

use edgecut_graph::{Graph, InlinedGraph, Operator, OperatorId, Part, TensorId, inline_composites};

use super::{
    error::ExportError,
    exported::{ExportOptions, Exported},
    opaque_node::is_writable,
    write_graph::{try_operator, write_graph},
};
use crate::error::Result as Written;

/// Whether a composite operator is written as its decomposition.
fn is_replaced(operator: &Operator) -> bool {
    operator.decomposition.is_some() && !is_writable(operator)
}

/// Writes `graph` as a model. The result refers to the operators and tensors of `graph`.
pub(super) fn write_decomposed(graph: &Graph, options: &ExportOptions<'_>) -> Result<Exported, ExportError> {
    if !graph.operators().any(|(_, operator)| is_replaced(operator)) {
        return write_graph(graph, options);
    }
    let inlined = inline_composites(graph, is_replaced);
    let content = |id: TensorId| inlined.whole_tensor(id).map_or(Ok(None), options.content);
    match write_graph(&inlined.graph, &ExportOptions { content: &content, ..*options }) {
        Ok(written) => Ok(of_whole(written, &inlined)),
        Err(ExportError::Operator { id: Some(id), reason, .. }) => {
            let whole = inlined.whole_operator[id.0 as usize];
            let operator = graph.unique_name(whole).to_string();
            Err(ExportError::Operator { id: Some(whole), operator, reason })
        }
        Err(error) => Err(error),
    }
}

/// The result for the inlined graph, in terms of operators and tensors of the original one.
fn of_whole(written: Exported, inlined: &InlinedGraph) -> Exported {
    let whole = |id: &OperatorId| inlined.whole_operator[id.0 as usize];
    let all = |operators: Vec<OperatorId>| {
        let mut operators: Vec<OperatorId> = operators.iter().map(whole).collect();
        operators.dedup();
        operators
    };
    let composed: HashMap<OperatorId, usize> = written.compositions.iter().copied().collect();
    let nodes_of = |id: OperatorId| composed.get(&id).copied().unwrap_or(1);
    let parts = inlined.operators.iter().enumerate();
    let sums =
        parts.map(|(at, parts)| (OperatorId(at as u32), parts.iter().map(|part| nodes_of(*part)).sum::<usize>()));
    let compositions = sums.filter(|(_, nodes)| *nodes > 1).collect();
    let named = |(name, id): (String, TensorId)| Some((name, inlined.whole_tensor(id)?));
    Exported {
        inputs: written.inputs.into_iter().filter_map(named).collect(),
        tensors: written.tensors.into_iter().filter_map(named).collect(),
        operators: written.operators.into_iter().map(|(name, operators)| (name, all(operators))).collect(),
        compositions,
        trapping: all(written.trapping),
        ..written
    }
}

/// Checks that an operator can be written, as a node or as its decomposition.
pub(super) fn try_decomposed(graph: &Graph, id: OperatorId) -> Written<()> {
    if !is_replaced(graph.operator(id)) {
        return try_operator(graph, id);
    }
    let inlined = inline_composites(&Part::cut(graph, &[id]).graph, |_| true).graph;
    inlined.operators().try_for_each(|(id, _)| try_operator(&inlined, id))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use edgecut_graph::{Attr, DType, Origin, TensorType};

    use super::*;

    /// x → my.Twice of operator set `version` → y, whose decomposition is x + x, then (x + x) x.
    fn graph(version: i64) -> Graph {
        let ty = TensorType::of(DType::F32, &[4]);
        let add = |graph: &mut Graph, name: &str, operands: &[TensorId]| {
            let operator = Operator::new(name, operands.iter().copied());
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            graph.operator(id).outputs[0]
        };
        let mut inner = Graph::new();
        let x = inner.add_tensor("x", ty.clone(), Origin::Input);
        let sum = add(&mut inner, "add", &[x, x]);
        inner.outputs = vec![add(&mut inner, "multiply", &[sum, x])];
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let x = add(&mut graph, "tanh", &[x]);
        let attrs = [("onnx.opset".into(), Attr::Int(version))].into_iter().collect();
        let composite = Operator::new("onnx.Clip", [x]).with_attrs(attrs).with_decomposition(Arc::new(inner));
        let id = graph.add_operator(composite, std::slice::from_ref(&ty));
        let y = graph.operator(id).outputs[0];
        graph.tensor_mut(y).name = "y".into();
        graph.outputs = vec![y];
        graph
    }

    #[test]
    fn a_node_that_means_something_else_now_is_written_as_its_decomposition() {
        for (version, kinds, composition) in [(13, &["Tanh", "Clip"][..], 0), (6, &["Tanh", "Add", "Mul"], 1)] {
            let graph = graph(version);
            let written = write_decomposed(&graph, &ExportOptions::new(&|_| Ok(None))).unwrap();
            let nodes = written.model.graph.unwrap().node;
            assert_eq!(nodes.iter().filter_map(|node| node.op_type.as_deref()).collect::<Vec<_>>(), kinds);
            assert_eq!(written.outputs, ["y"]);
            let known: Vec<&Vec<OperatorId>> = nodes.iter().map(|node| &written.operators[&node.output[0]]).collect();
            assert!(known.iter().all(|operators| operators[0].0 < 2), "{known:?}");
            assert_eq!(written.operators["y"], [OperatorId(1)]);
            assert_eq!(written.inputs, [("x".to_string(), TensorId(0))]);
            assert_eq!(written.compositions.len(), composition);
            assert!(try_decomposed(&graph, OperatorId(1)).is_ok());
        }
    }
}
