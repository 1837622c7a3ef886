//! The split axes along which an operator passes on partial sums of an operand.

use edgecut_graph::{Graph, Operator, TensorId};

use crate::{
    passes::declared::declared_axes,
    registry::lookup,
    split::{Carried, Join, Linearity, SplitAxis},
};

/// Most linear operators between a reduction and the last one that its partial sums pass through: a scale, a reshape, a bias and
/// a residual sum follow each other.
const MOST_LINEAR: usize = 5;

/// The axes along which `operator` passes on partial sums: those of the reductions before it, with only linear operators between,
/// the nearest ones first.
pub(super) fn carried_axes(graph: &Graph, operator: &Operator) -> Vec<SplitAxis> {
    by_distance(graph, operator, MOST_LINEAR).into_iter().flatten().collect()
}

/// The same by the number of operators between, which is less than `distances`. With fewer distances it is a prefix, so that axes
/// keep their numbers.
fn by_distance(graph: &Graph, operator: &Operator, distances: usize) -> Vec<Vec<SplitAxis>> {
    let mut found: Vec<Vec<SplitAxis>> = Vec::new();
    found.resize_with(distances, Vec::new);
    let linearity = lookup(&operator.name).map_or(Linearity::Nonlinear, |def| def.linearity);
    if distances == 0 || linearity == Linearity::Nonlinear {
        return found;
    }
    let is_offset = matches!(linearity, Linearity::Offset(_));
    for operand in linearity.operands() {
        let tensor = operator.operands().nth(*operand).filter(|tensor| passes(graph, operator, linearity, *tensor));
        let Some(producer) = tensor.and_then(|tensor| graph.producer(tensor)).map(|id| graph.operator(id)) else {
            continue;
        };
        let carry = |axis: usize, sum: &SplitAxis| SplitAxis {
            grain: sum.grain,
            carried: Some(Carried { operand: *operand, axis, is_offset }),
            ..SplitAxis::new(Join::Sum, sum.size, operator.operands().count())
        };
        let declared = declared_axes(graph, producer);
        let sums = declared.iter().enumerate().filter(|(_, axis)| axis.join == Join::Sum);
        found[0].extend(sums.map(|(number, sum)| carry(number, sum)));
        let mut number = declared.len();
        for (distance, sums) in by_distance(graph, producer, distances - 1).iter().enumerate() {
            for sum in sums {
                found[distance + 1].push(carry(number, sum));
                number += 1;
            }
        }
    }
    found
}

/// Whether partial sums of `tensor`, in which `operator` is linear, make partial sums of its result.
fn passes(graph: &Graph, operator: &Operator, linearity: Linearity, tensor: TensorId) -> bool {
    let [result] = operator.outputs[..] else { return false };
    let (from, to) = (&graph.tensor(tensor).ty, &graph.tensor(result).ty);
    let is_once = operator.operands().filter(|operand| *operand == tensor).count() == 1;
    let (Some(before), Some(after)) = (from.shape.fixed(), to.shape.fixed()) else { return false };
    is_once && from.dtype == to.dtype && (matches!(linearity, Linearity::Linear(_)) || before == after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{Attr, DType, Origin, TensorType};

    /// An operator on the last result: its name, the shape of its other operand and whether that is the left one, and the shape of
    /// its result. Reshapes have no other operand.
    type TestCall = (&'static str, Option<(&'static [u64], bool)>, &'static [u64]);

    /// A dense layer (4, 8) x (6, 8) and `calls` after it.
    fn graph(calls: &[TestCall]) -> Graph {
        let mut graph = Graph::new();
        let ty = |shape: &[u64]| TensorType::of(DType::F32, shape);
        let x = graph.add_tensor("x", ty(&[4, 8]), Origin::Input);
        let w = graph.add_tensor("w", ty(&[6, 8]), Origin::Parameter);
        let dense = graph.add_operator(Operator::new("nn.dense", [x, w]), &[ty(&[4, 6])]);
        let mut at = graph.operator(dense).outputs[0];
        for (number, (name, other, result)) in calls.iter().enumerate() {
            let operator = match other {
                Some((shape, is_left)) => {
                    let other = graph.add_tensor(format!("t{number}"), ty(shape), Origin::Input);
                    Operator::new(*name, if *is_left { [other, at] } else { [at, other] })
                }
                None => {
                    let shape = Attr::List(result.iter().map(|n| Attr::Int(*n as i64)).collect());
                    Operator::new(*name, [at]).with_attrs([("newshape".into(), shape)].into_iter().collect())
                }
            };
            let id = graph.add_operator(operator, &[ty(result)]);
            at = graph.operator(id).outputs[0];
        }
        graph.outputs = vec![at];
        graph
    }

    #[test]
    fn sums_pass_through_linear_operators_alone() {
        let same: &[u64] = &[4, 6];
        let residual = ("add", Some((same, true)), same);
        let flat = ("reshape", None, &[24u64][..]);
        let cases: [(&[TestCall], bool); 11] = [
            (&[("add", Some((&[6], false)), same)], true),
            (&[("nn.bias_add", Some((&[6], false)), same)], true),
            (&[residual], true),
            (&[("multiply", Some((&[6], true)), same)], true),
            (&[("subtract", Some((same, false)), same)], true),
            // The sum comes out negated.
            (&[("subtract", Some((same, true)), same)], false),
            // What is added is broadcast: every shard would add its sum to all of it.
            (&[("add", Some((&[2, 4, 6], false)), &[2, 4, 6])], false),
            (&[("multiply", Some((&[2, 4, 6], false)), &[2, 4, 6])], true),
            (&[("maximum", Some((same, false)), same)], false),
            (&[flat, ("add", Some((&[24], false)), &[24])], true),
            (&[residual, residual, residual, residual, residual, residual], false),
        ];
        for (calls, expected) in cases {
            let graph = graph(calls);
            let last = graph.operators().last().unwrap().1;
            let axes = carried_axes(&graph, last);
            assert_eq!(!axes.is_empty(), expected, "{calls:?}: {axes:?}");
            assert!(axes.iter().all(|axis| axis.join == Join::Sum && axis.size == 8), "{calls:?}: {axes:?}");
        }
    }

    #[test]
    fn axes_of_a_producer_are_numbered_as_its_own() {
        let same: &[u64] = &[4, 6];
        let graph = graph(&[("multiply", Some((same, false)), same), ("add", Some((same, true)), same)]);
        let [dense, scaled, last] = [0, 1, 2].map(|at| graph.operators().nth(at).unwrap().1);
        let carried = carried_axes(&graph, last);
        let [axis] = &carried[..] else { panic!("{carried:?}") };
        let of = axis.carried.unwrap();
        assert_eq!((of.operand, of.is_offset), (1, true));
        let inner = carried_axes(&graph, scaled).swap_remove(of.axis - declared_axes(&graph, scaled).len());
        let of = inner.carried.unwrap();
        assert_eq!((of.operand, of.is_offset), (0, false));
        assert_eq!(declared_axes(&graph, dense)[of.axis].join, Join::Sum);
    }
}
