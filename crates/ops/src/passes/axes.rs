//! All axes along which an operator can be split, by number: the numbers that plan files have.

use std::cmp::Ordering;

use edgecut_graph::{Graph, Operator, TensorId};

use crate::{
    passes::{carried::carried_axes, composite_axes::Composite, declared::declared_axes, shard::SplitError},
    registry::lookup,
    split::{Join, SplitAxis},
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

/// The number of the axis of `other`, the same operator on operands of other sizes, that cuts what axis `number` of `operator` cuts:
/// the same dimensions of operands and results, at as many positions. `None` if there is none.
pub fn counterpart(of: (&Graph, &Operator), number: usize, other: (&Graph, &Operator)) -> Option<usize> {
    let wanted = axis(of.0, of.1, number).ok()?;
    let candidates = axes(other.0, other.1);
    match wanted.join {
        Join::Replicated => replica_axis(other.0, other.1).map(|_| candidates.len()),
        _ => candidates.iter().position(|axis| axis.cuts_same(&wanted)),
    }
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
    fn counterparts_cut_the_same_dimensions() {
        let dense = |rows: u64| {
            let mut graph = Graph::new();
            let [x, w] = [("x", [rows, 8], Origin::Input), ("w", [6, 8], Origin::Parameter)]
                .map(|(name, shape, origin)| graph.add_tensor(name, TensorType::of(DType::F32, &shape), origin));
            let operator = Operator::new("nn.dense", [x, w]);
            graph.add_operator(operator, &[TensorType::of(DType::F32, &[rows, 6])]);
            graph
        };
        let (one, four, two) = (dense(1), dense(4), dense(2));
        let of = |graph: &Graph| graph.operators().next().unwrap().1.clone();
        let axes_of = |graph: &Graph| axes(graph, &of(graph));
        let mapped = |from: &Graph, to: &Graph| {
            let number = |at| counterpart((from, &of(from)), at, (to, &of(to)));
            (0..axes_of(from).len()).map(number).collect::<Vec<_>>()
        };
        let found = mapped(&one, &four);
        assert!(!found.is_empty() && axes_of(&four).len() == found.len() + 1, "one row is no axis: {found:?}");
        for (axis, number) in axes_of(&one).iter().zip(&found) {
            let other = &axes_of(&four)[number.unwrap()];
            assert_eq!((&axis.join, axis.size), (&other.join, other.size));
        }
        let lengths = |graph: &Graph| axes_of(graph).iter().map(|axis| axis.size).collect::<Vec<_>>();
        let expected: Vec<_> = lengths(&four).iter().enumerate().map(|(at, size)| (*size != 4).then_some(at)).collect();
        assert_eq!(mapped(&four, &two), expected, "rows are cut at other positions");
        // A sum that the next operator passes on.
        let carried = |rows: u64| {
            let mut graph = dense(rows);
            let product = graph.operators().next().unwrap().1.outputs[0];
            let ty = TensorType::of(DType::F32, &[rows, 6]);
            let residual = graph.add_tensor("r", ty.clone(), Origin::Input);
            graph.add_operator(Operator::new("add", [product, residual]), &[ty]);
            graph
        };
        let (one_row, four_rows) = (carried(1), carried(4));
        let add = |graph: &Graph| graph.operators().nth(1).unwrap().1.clone();
        let count = axes(&one_row, &add(&one_row)).len();
        let sum = axes(&one_row, &add(&one_row)).iter().position(|axis| axis.carried.is_some()).unwrap();
        let other = counterpart((&one_row, &add(&one_row)), sum, (&four_rows, &add(&four_rows))).unwrap();
        assert!(axes(&four_rows, &add(&four_rows))[other].carried.is_some() && sum < count);
        let replicas = counterpart((&one, &of(&one)), axes_of(&one).len(), (&four, &of(&four)));
        assert_eq!(replicas, Some(axes_of(&four).len()));
    }

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
