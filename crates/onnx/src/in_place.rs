//! Operators whose kernels in ONNX Runtime write a result into the storage of an operand: caches that grow in place.

use edgecut_graph::{Graph, OperatorId, TensorId};

use crate::opaque;

/// By operator: the numbers of inputs and of the outputs that may have their storage. Of the specification of
/// `GroupQueryAttention`: "present state key [may] share the same buffer with past key"
/// (<https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>).
const IN_PLACE: &[(&str, &[(usize, usize)])] = &[("com.microsoft.GroupQueryAttention", &[(3, 1), (4, 2)])];

/// The operands of `operator` that its kernel may overwrite with a result of the same type, with these results.
pub fn in_place(graph: &Graph, operator: OperatorId) -> Vec<(TensorId, TensorId)> {
    let operator = graph.operator(operator);
    let Some((_, pairs)) = IN_PLACE.iter().find(|(name, _)| operator.name == *name) else { return Vec::new() };
    let Some(node) = opaque::node(operator) else { return Vec::new() };
    let place = |present: &[bool], at: usize| {
        present.get(at).is_some_and(|is| *is).then(|| present[..at].iter().filter(|is| **is).count())
    };
    let tensors = |(input, output): &(usize, usize)| {
        let operand = operator.operands().nth(place(&node.inputs, *input)?)?;
        let result = *operator.outputs.get(place(&node.outputs, *output)?)?;
        (graph.tensor(operand).ty == graph.tensor(result).ty).then_some((operand, result))
    };
    pairs.iter().filter_map(tensors).collect()
}
