//! Graphs with composite operators that cannot be written as the nodes that they were: their decompositions are written.

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

/// Writes `graph` as a model. What is said of it is said of its own operators and tensors.
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

/// What was written of the inlined graph, by operators and tensors of the original one.
fn of_whole(written: Exported, inlined: &InlinedGraph) -> Exported {
    let whole = |id: &OperatorId| inlined.whole_operator[id.0 as usize];
    let all = |operators: Vec<OperatorId>| {
        let mut operators: Vec<OperatorId> = operators.iter().map(whole).collect();
        operators.dedup();
        operators
    };
    let mut compositions: Vec<(OperatorId, usize)> = Vec::new();
    for (id, nodes) in &written.compositions {
        match compositions.last_mut().filter(|(last, _)| *last == whole(id)) {
            Some((_, sum)) => *sum += nodes,
            None => compositions.push((whole(id), *nodes)),
        }
    }
    let input = |(name, id): (String, TensorId)| Some((name, inlined.whole_tensor(id)?));
    Exported {
        inputs: written.inputs.into_iter().filter_map(input).collect(),
        operators: written.operators.into_iter().map(|(name, operators)| (name, all(operators))).collect(),
        compositions,
        trapping: all(written.trapping),
        ..written
    }
}

/// Whether one operator can be written, as a node or as its decomposition; the reason why not.
pub(super) fn try_decomposed(graph: &Graph, id: OperatorId) -> Written<()> {
    if !is_replaced(graph.operator(id)) {
        return try_operator(graph, id);
    }
    let inlined = inline_composites(&Part::cut(graph, &[id]).graph, |_| true).graph;
    inlined.operators().try_for_each(|(id, _)| try_operator(&inlined, id))
}
