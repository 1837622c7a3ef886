//! FLOPs of operators without a definition, estimated from their shapes and what their names say.

use edgecut_graph::{Attr, Graph, Operator, TensorId};

/// Products and attention by the sizes that they contract, everything else an operation for each element read or written.
/// Zero where a shape is unknown.
pub(super) fn opaque_flops(graph: &Graph, operator: &Operator) -> u64 {
    let kind = operator.name.rsplit('.').next().unwrap_or_default();
    let operands: Vec<TensorId> = operator.operands().collect();
    let elements = |tensor: &TensorId| graph.tensor(*tensor).ty.shape.elements();
    let size = |operand: usize, from_end: usize| {
        let shape = &graph.tensor(*operands.get(operand)?).ty.shape;
        shape.get(shape.rank().checked_sub(from_end)?)?.get()
    };
    let result = operator.outputs.first().and_then(elements);
    // Multiplications and additions for each element of the first result.
    let contracted = match kind {
        _ if kind.contains("Attention") => longest_past(graph, operator).or_else(|| size(1, 2)).map(|keys| 2 * keys),
        _ if kind.contains("Conv") => {
            let weights = operands.iter().skip(1).filter(|operand| graph.tensor(**operand).ty.shape.rank() > 2);
            weights.filter_map(elements).max().zip(size_of_channels(graph, operator)).map(|(all, n)| all / n.max(1))
        }
        _ if kind.contains("MatMul") || kind.contains("Gemm") => size(0, 1),
        _ => None,
    };
    if let Some((result, contracted)) = result.zip(contracted) {
        return result.saturating_mul(contracted.saturating_mul(2));
    }
    let mut all = operands.iter().chain(&operator.outputs).map(elements);
    all.try_fold(0u64, |sum, count| Some(sum.saturating_add(count?))).unwrap_or(0)
}

/// The length of the keys that an attention returns for its next step: of [batch, heads, length, size].
fn longest_past(graph: &Graph, operator: &Operator) -> Option<u64> {
    let shape = &graph.tensor(*operator.outputs.get(1)?).ty.shape;
    shape.get(shape.rank().checked_sub(2)?)?.get()
}

/// Channels of the result of a convolution, whose layout is NC… unless it says otherwise.
fn size_of_channels(graph: &Graph, operator: &Operator) -> Option<u64> {
    let shape = &graph.tensor(*operator.outputs.first()?).ty.shape;
    let is_last = operator.attrs.get("channels_last").and_then(Attr::int).is_some_and(|flag| flag != 0);
    shape.get(if is_last { shape.rank().checked_sub(1)? } else { 1 })?.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Origin, TensorType};

    #[test]
    fn names_say_what_is_contracted() {
        for (name, operands, result, expected) in [
            ("com.microsoft.MatMulNBits", vec![vec![2, 3, 64], vec![32, 4, 8]], vec![2, 3, 32], 2 * 192 * 64),
            ("onnx.ConvInteger", vec![vec![1, 8, 6, 6], vec![16, 8, 3, 3]], vec![1, 16, 4, 4], 2 * 256 * 72),
            ("com.microsoft.MultiHeadAttention", vec![vec![1, 5, 64], vec![1, 7, 64]], vec![1, 5, 64], 2 * 320 * 14),
            ("onnx.Unique", vec![vec![10]], vec![4], 14),
        ] {
            let mut graph = Graph::new();
            let ty = |dims: &[u64]| TensorType::of(DType::F32, dims);
            let operands: Vec<_> = operands.iter().map(|dims| graph.add_tensor("x", ty(dims), Origin::Input)).collect();
            let id = graph.add_operator(Operator::new(name, operands), &[ty(&result)]);
            assert_eq!(opaque_flops(&graph, graph.operator(id)), expected, "{name}");
        }
    }
}
