//! Splits of composite operators along a reduction axis of the decomposition (split-K): each shard computes a partial sum of the result,
//! as of a product whose weights are quantised in blocks along that axis.

use std::sync::Arc;

use edgecut_graph::{Graph, OperatorId, TensorId};

use crate::{
    passes::{
        carried::carried_axes,
        composite_axes::Composite,
        range_propagation::{Demand, RangePropagation},
    },
    split::{Join, SplitAxis},
};

/// A reduction in a decomposition, and the linear operators after it, up to the result.
struct Reduction {
    operator: OperatorId,
    axis: Arc<SplitAxis>,
    /// The other operands of the linear operators.
    others: Vec<TensorId>,
}

impl Composite<'_> {
    /// The reduction axes along which it can be split into at least two shards, if it has a single result.
    pub fn reduction_axes(&self) -> Vec<SplitAxis> {
        let inner = &**self.decomposition;
        let [result] = inner.outputs[..] else { return Vec::new() };
        let Some(last) = inner.producer(result) else { return Vec::new() };
        let readers = inner.consumers();
        let count = self.axes[last.0 as usize].len() + carried_axes(inner, inner.operator(last)).len();
        let sum = |number: usize| {
            let reduction = self.reduction(inner, &readers, (last, number))?;
            let mut propagation = RangePropagation::new(inner, reduction.axis.size);
            reduction.others.iter().try_for_each(|tensor| propagation.require(*tensor, Demand::Whole))?;
            propagation.choose(reduction.operator, &reduction.axis, Vec::new())?;
            propagation.propagate(&self.axes)?;
            self.split(Join::Sum, propagation, None)
        };
        (0..count).filter_map(sum).filter(|split| split.size > split.grain).collect()
    }

    /// The reduction whose partial sums axis `number` of operator `id` computes or passes on. `None` if that is not a reduction axis, a
    /// partial sum has another reader, or a later operator adds an offset, which only the first shard may do.
    fn reduction(
        &self,
        inner: &Graph,
        readers: &[Vec<OperatorId>],
        (mut id, mut number): (OperatorId, usize),
    ) -> Option<Reduction> {
        let mut others = Vec::new();
        loop {
            let declared = &self.axes[id.0 as usize];
            if let Some(axis) = declared.get(number) {
                let is_sum = axis.join == Join::Sum;
                return is_sum.then(|| Reduction { operator: id, axis: axis.clone(), others });
            }
            let operator = inner.operator(id);
            let carried = carried_axes(inner, operator).get(number - declared.len())?.carried?;
            let sum = operator.operands().nth(carried.operand)?;
            if carried.is_offset || readers[sum.0 as usize] != [id] {
                return None;
            }
            others.extend(operator.operands().filter(|operand| *operand != sum));
            (id, number) = (inner.producer(sum)?, carried.axis);
        }
    }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{Attr, Attrs, DType, Operator, Origin, TensorType};

    use super::*;

    /// The reduction axes of a product x (2, 8) × w (6, 8) with `calls` after it: each an operator of the last result and, if it
    /// has one, of a further operand of that shape.
    fn sums(calls: &[(&'static str, Option<&'static [u64]>)], attrs: Vec<(&'static str, Attr)>) -> Vec<(u64, u64)> {
        let ty = |shape: &[u64]| TensorType::of(DType::F32, shape);
        let mut inner = Graph::new();
        let mut operands = [&[2, 8][..], &[6, 8]].map(|shape| inner.add_tensor("x", ty(shape), Origin::Input)).to_vec();
        let product = inner.add_operator(Operator::new("nn.dense", operands.clone()), &[ty(&[2, 6])]);
        let mut at = inner.operator(product).outputs[0];
        for (name, other) in calls {
            let other = other.map(|shape| inner.add_tensor("c", ty(shape), Origin::Input));
            operands.extend(other);
            let id = inner.add_operator(Operator::new(*name, [at].into_iter().chain(other)), &[ty(&[2, 6])]);
            at = inner.operator(id).outputs[0];
        }
        inner.outputs = vec![at];
        let mut graph = Graph::new();
        let outer: Vec<TensorId> =
            operands.iter().map(|id| graph.add_tensor("x", inner.tensor(*id).ty.clone(), Origin::Input)).collect();
        let attrs: Attrs = attrs.into_iter().map(|(key, value)| (key.into(), value)).collect();
        let operator = Operator::new("my.product", outer).with_attrs(attrs).with_decomposition(Arc::new(inner));
        let id = graph.add_operator(operator, &[ty(&[2, 6])]);
        let operator = graph.operator(id);
        let Some(composite) = Composite::of(operator, operator.decomposition.as_ref().unwrap()) else {
            return Vec::new();
        };
        let sums = composite.reduction_axes();
        for sum in &sums {
            let shard = sum.shard(&graph, operator, &(0..sum.size / 2)).unwrap();
            assert_eq!(shard.types, [ty(&[2, 6])], "a partial sum of all of the result");
            let slices = shard.operands.iter().take(2).map(|slice| slice.as_ref().map(|s| (s.axis, s.end)));
            assert_eq!(slices.collect::<Vec<_>>(), [Some((1, 4)), Some((1, 4))]);
            if operator.attrs.get("K").is_some() {
                assert_eq!(shard.attrs.get("K"), Some(&Attr::Int(4)));
            }
        }
        sums.iter().map(|sum| (sum.size, sum.grain)).collect()
    }

    #[test]
    fn partial_sums_pass_through_linear_operators() {
        assert_eq!(sums(&[], vec![]), [(8, 1)]);
        assert_eq!(sums(&[], vec![("K", Attr::Int(8)), ("N", Attr::Int(6))]), [(8, 1)]);
        assert_eq!(sums(&[("multiply", Some(&[6]))], vec![]), [(8, 1)]);
        assert_eq!(sums(&[("add", Some(&[6]))], vec![]), [], "a bias would be added by every shard");
        assert_eq!(sums(&[("nn.relu", None)], vec![]), [], "not linear");
        assert_eq!(sums(&[], vec![("num_heads", Attr::Int(2))]), [], "the number of heads of a shard is unknown");
    }
}
