//! Splits operators of a graph into shards: each shard becomes an operator, with slices and concatenations between them.
//!
//! The result is an ordinary graph with the same results, so engines, agents and the planner need no notion of shards. A
//! shard whose operand is exactly one other shard's result reads that; one that needs more (the halo of a sliding window)
//! reads the rest as a slice of the neighbour's result.

use std::{collections::BTreeMap, ops::Range};

use edgecut_graph::{Graph, Operator, OperatorId};

pub use crate::passes::rewriter::{Role, Sharded};
use crate::{
    passes::{
        rewriter::{GraphRewriter, ShardLayout, ShardTensor},
        shard::{Shard, SplitError, axes},
    },
    split::Join,
};

/// How one operator is split into shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharding {
    /// Index into the operator's [`axes`].
    pub axis: usize,
    /// Shard boundaries in ascending order, from 0 to the size of the axis.
    pub cuts: Vec<u64>,
}

/// Splits the operators in `shardings`; the others stay whole.
///
/// # Errors
/// If an operator cannot be split as specified.
pub fn shard_graph(graph: &Graph, shardings: &BTreeMap<OperatorId, Sharding>) -> Result<Sharded, SplitError> {
    if shardings.is_empty() {
        let whole = |(operator, _)| Role::Compute(Shard { operator, index: 0 });
        return Ok(Sharded { graph: graph.clone(), roles: graph.operators().map(whole).collect() });
    }
    let mut rewriter = GraphRewriter::new(graph);
    for (id, operator) in graph.operators() {
        match shardings.get(&id) {
            Some(sharding) => rewriter.split(id, operator, sharding)?,
            None => rewriter.keep(id, operator)?,
        }
    }
    for output in &graph.outputs {
        let new = rewriter.read(*output, None, Role::Output)?;
        rewriter.out.graph.outputs.push(new);
    }
    Ok(rewriter.out)
}

impl GraphRewriter<'_> {
    fn split(&mut self, id: OperatorId, operator: &Operator, sharding: &Sharding) -> Result<(), SplitError> {
        let op = operator.name.to_string();
        let mut axes = axes(self.original, operator);
        if sharding.axis >= axes.len() {
            return Err(SplitError::NoAxis { op, axis: sharding.axis, axes: axes.len() });
        }
        let axis = axes.swap_remove(sharding.axis);
        let cuts = &sharding.cuts;
        let ascending = cuts.windows(2).all(|w| w[0] < w[1]);
        let ends = cuts.first() == Some(&0) && cuts.last() == Some(&axis.size);
        let on_grain = cuts.iter().rev().skip(1).all(|cut| cut % axis.grain == 0);
        if !(ascending && ends && on_grain) {
            return Err(SplitError::Cuts { op, cuts: cuts.clone(), grain: axis.grain, size: axis.size });
        }
        let ranges: Vec<Range<u64>> = cuts.windows(2).map(|w| w[0]..w[1]).collect();
        for (index, range) in (0u32..).zip(&ranges) {
            let shard = Shard { operator: id, index };
            let call = axis.shard(self.original, operator, range)?;
            let mut copy = operator.clone();
            copy.args = self.operands(operator, &call.operands, Role::Prepare(shard))?;
            copy.attrs = call.attrs;
            let outputs = self.add(copy, &call.types, Role::Compute(shard));
            for (old, new) in operator.outputs.iter().zip(outputs) {
                let name = format!("{}[{}..{}]", self.original.tensor(*old).name, range.start, range.end);
                self.out.graph.tensor_mut(new).name = name.into();
                self.shards[old.0 as usize].push(ShardTensor { tensor: new, producer: Some(shard) });
            }
        }
        for (index, output) in operator.outputs.iter().enumerate() {
            let layout = match &axis.join {
                Join::Sum => ShardLayout::Partial,
                Join::Axis(axes) => match axes.get(index).copied().flatten() {
                    Some(axis) => ShardLayout::Concat { axis, ranges: ranges.clone() },
                    None => ShardLayout::Whole,
                },
            };
            if layout == ShardLayout::Whole {
                self.shards[output.0 as usize].truncate(1);
            }
            self.layouts[output.0 as usize] = layout;
        }
        Ok(())
    }
}
