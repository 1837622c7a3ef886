//! All axes along which an operator can be split, by number: the numbers that plan files have.

use std::cmp::Ordering;

use edgecut_graph::{Graph, Operator, TensorId};

use crate::{
    passes::{carried::carried_axes, composite_axes::Composite, declared::declared_axes, shard::SplitError},
    registry::lookup,
    split::SplitAxis,
};

/// The axes along which `operator` can be split into at least two shards: those that it declares or that follow from its
/// decomposition, then those along which it passes on partial sums of an operand. Empty for an operator that is unknown, has no
/// such axes, or has unknown dimensions.
pub fn axes(graph: &Graph, operator: &Operator) -> Vec<SplitAxis> {
    let mut axes = own_axes(graph, operator);
    axes.extend(carried_axes(graph, operator));
    axes
}

fn own_axes(graph: &Graph, operator: &Operator) -> Vec<SplitAxis> {
    match &operator.decomposition {
        Some(decomposition) => {
            let Some(composite) = Composite::of(operator, decomposition) else { return Vec::new() };
            composite.result_axes().into_iter().chain(composite.reduction_axes()).collect()
        }
        None => declared_axes(graph, operator),
    }
}

/// Axis `number` of those; one more than the last is the [`replica_axis`].
///
/// # Errors
/// If there is none.
pub(crate) fn axis(graph: &Graph, operator: &Operator, number: usize) -> Result<SplitAxis, SplitError> {
    let mut axes = own_axes(graph, operator);
    if number >= axes.len() {
        axes.extend(carried_axes(graph, operator));
    }
    let count = axes.len();
    let found = match number.cmp(&count) {
        Ordering::Less => Some(axes.swap_remove(number)),
        Ordering::Equal => replica_axis(graph, operator),
        Ordering::Greater => None,
    };
    found.ok_or_else(|| SplitError::NoAxis { op: operator.name.to_string(), axis: number, axes: count })
}

/// The axis of [replicas](SplitAxis::of_replicas) of `operator`; `None` if two of them may compute different results on unlike devices:
/// random numbers, integers decided by floats (TopK, comparisons), or an operator that is unknown.
pub fn replica_axis(graph: &Graph, operator: &Operator) -> Option<SplitAxis> {
    let mut operators = vec![(graph, operator)];
    while let Some((graph, next)) = operators.pop() {
        let dtype = |tensor: TensorId| graph.tensor(tensor).ty.dtype;
        let reads_floats = next.operands().any(|operand| dtype(operand).is_float());
        if reads_floats && next.outputs.iter().any(|output| !dtype(*output).is_float()) {
            return None;
        }
        if let Some(inner) = next.decomposition.as_deref() {
            operators.extend(inner.operators().map(|(_, operator)| (inner, operator)));
        } else if lookup(&next.name).is_none_or(|def| def.is_random) {
            return None;
        }
    }
    Some(SplitAxis::of_replicas(operator))
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{DType, Origin, TensorType};

    use super::*;

    #[test]
    fn what_may_differ_is_not_replicated() {
        let is_replicable = |name: &str, to: DType| {
            let mut graph = Graph::new();
            let x = graph.add_tensor("x", TensorType::of(DType::F32, &[4]), Origin::Input);
            let id = graph.add_operator(Operator::new(name, [x]), &[TensorType::of(to, &[4])]);
            replica_axis(&graph, graph.operator(id)).is_some()
        };
        assert!(is_replicable("nn.softmax", DType::F32));
        for (name, to) in [("random_normal_like", DType::F32), ("Multinomial", DType::F32), ("argmax", DType::I64)] {
            assert!(!is_replicable(name, to), "{name}");
        }
    }
}
