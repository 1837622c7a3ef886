//! The split axes along which an operator carries on the partial sums of an operand.

use edgecut_graph::{Graph, Operator, TensorId};

use crate::{
    passes::shard::declared_axes,
    registry::lookup,
    split::{Carried, Join, Linearity, SplitAxis},
};

/// Most linear operators that partial sums pass through: a scale, a reshape, a bias and a residual sum come one after the other.
const MOST_LINEAR: usize = 5;

/// The axes along which `operator` carries on partial sums: those of the nearest reduction before it, with only linear operators
/// between, that declares any.
pub(crate) fn carried_axes(graph: &Graph, operator: &Operator) -> Vec<SplitAxis> {
    (0..MOST_LINEAR).find_map(|between| after(graph, operator, between)).unwrap_or_default()
}

/// The same, of a reduction with just so many linear operators between.
fn after(graph: &Graph, operator: &Operator, between: usize) -> Option<Vec<SplitAxis>> {
    let linearity = lookup(&operator.name)?.linearity;
    linearity.operands().iter().find_map(|index| {
        let tensor = operator.operands().nth(*index).filter(|tensor| passes(graph, operator, linearity, *tensor))?;
        let producer = graph.operator(graph.producer(tensor)?);
        let declared = declared_axes(graph, producer);
        let count = declared.len();
        let sums: Vec<(usize, SplitAxis)> = match between {
            0 => declared.into_iter().enumerate().filter(|(_, axis)| axis.join == Join::Sum).collect(),
            _ => after(graph, producer, between - 1)?.into_iter().enumerate().map(|(at, a)| (count + at, a)).collect(),
        };
        let is_offset = matches!(linearity, Linearity::Offset(_));
        let carry = |(axis, sum): (usize, SplitAxis)| SplitAxis {
            grain: sum.grain,
            carried: Some(Carried { operand: *index, axis, is_offset }),
            ..SplitAxis::new(Join::Sum, sum.size, operator.operands().count())
        };
        (!sums.is_empty()).then(|| sums.into_iter().map(carry).collect())
    })
}

/// Whether partial sums of `tensor`, in which `operator` is linear, make partial sums of its result.
fn passes(graph: &Graph, operator: &Operator, linearity: Linearity, tensor: TensorId) -> bool {
    let [result] = operator.outputs[..] else { return false };
    let (from, to) = (&graph.tensor(tensor).ty, &graph.tensor(result).ty);
    let is_once = operator.operands().filter(|operand| *operand == tensor).count() == 1;
    let is_known = from.shape.fixed().is_some();
    let keeps_shape = matches!(linearity, Linearity::Linear(_)) || from.shape.fixed() == to.shape.fixed();
    is_once && is_known && keeps_shape && from.dtype == to.dtype
}
