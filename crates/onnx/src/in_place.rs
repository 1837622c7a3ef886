//! Operators whose kernels in ONNX Runtime write a result into the storage of an operand: caches that grow in place.

use edgecut_graph::{Graph, OperatorId, TensorId};

use crate::opaque;

/// By operator: the numbers of inputs and of the outputs that may have their storage, all of them or none: unless both caches
/// are shared, `GroupQueryAttention` clears the new ones before it reads the old ones
/// (<https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md>, `past_present_share_buffer`).
const IN_PLACE: &[(&str, &[(usize, usize)])] = &[("com.microsoft.GroupQueryAttention", &[(3, 1), (4, 2)])];

/// The operands of `operator` that its kernel may overwrite with results of the same types, with these results: all at once,
/// and only where each is a tensor of its own. Empty for other operators.
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
        let is_read_once = operator.operands().filter(|id| *id == operand).count() == 1;
        let (from, to) = (&graph.tensor(operand).ty, &graph.tensor(result).ty);
        (is_read_once && from == to && from.bytes().is_some()).then_some((operand, result))
    };
    pairs.iter().map(tensors).collect::<Option<_>>().unwrap_or_default()
}
