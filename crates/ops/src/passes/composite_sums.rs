//! Splits of composite operators along a reduction axis of their decompositions: each shard computes a partial sum of the result,
//! as of a product whose weights are quantised in blocks along the reduction axis.

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
    /// What the linear operators read besides the sum.
    others: Vec<TensorId>,
}

impl Composite<'_> {
    /// The reduction axes along which it can be split into at least two shards, if it has a single result.
    pub fn sums(&self) -> Vec<SplitAxis> {
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

    /// The reduction whose partial sums axis `number` of operator `id` makes or passes on. `None` if the axis is none of a sum,
    /// another operator reads a partial sum, or one after the reduction is for the first shard alone.
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
