//! Splits operators of a graph into shards: each shard becomes an operator, with slices and concatenations between them.
//!
//! The result is an ordinary graph with the same results, so engines, agents and the planner need no notion of shards. A
//! shard whose operand is exactly one other shard's result reads that; one that needs more (the halo of a sliding window)
//! reads the rest as a slice of the neighbour's result. Where shards are overlapping tiles, they have computed halos themselves.
//! What depends on parameters alone is copied for each shard that reads it.

use std::{collections::BTreeMap, ops::Range};

use edgecut_graph::{Graph, Operator, OperatorId, TensorId};

pub use crate::passes::rewriter::{Role, Sharded};
use crate::{
    passes::{
        axes::axis,
        rewriter::{GraphRewriter, ShardLayout, ShardTensor, map_args},
        shard::{Shard, SplitError},
    },
    split::{Carried, Join, SplitAxis},
};

/// How one operator is split into shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharding {
    /// Index into the operator's [`axes`](crate::passes::axes::axes).
    pub axis: usize,
    /// Shard boundaries in ascending order, from 0 to the size of the axis.
    pub cuts: Vec<u64>,
    /// What each shard computes: all between its boundaries and, of its neighbours' shares, what shards of later operators
    /// need and would otherwise receive (fused tiles: Zhao et al., DeepThings, TCAD 2018). Empty if no shard computes more
    /// than its share.
    pub tiles: Vec<Range<u64>>,
}

impl Sharding {
    /// Shards that compute nothing twice.
    pub fn disjoint(axis: usize, cuts: Vec<u64>) -> Sharding {
        Sharding { axis, cuts, tiles: Vec::new() }
    }

    /// What each shard computes.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        match self.tiles.is_empty() {
            true => self.cuts.windows(2).map(|w| w[0]..w[1]).collect(),
            false => self.tiles.clone(),
        }
    }

    /// Whether the boundaries are on the grain of `axis`, and the tiles are as many, contain the shares, and differ.
    pub fn fits(&self, axis: &SplitAxis) -> bool {
        let cuts = &self.cuts;
        let on_grain = |at: &u64| at.is_multiple_of(axis.grain) || *at == axis.size;
        let ascending = cuts.windows(2).all(|w| w[0] < w[1]);
        let ends = cuts.first() == Some(&0) && cuts.last() == Some(&axis.size);
        let contains = |(tile, share): (&Range<u64>, &[u64])| tile.start <= share[0] && share[1] <= tile.end;
        let tiles = self.tiles.is_empty()
            || axis.join != Join::Sum
                && self.tiles.len() + 1 == cuts.len()
                && self.tiles.iter().zip(cuts.windows(2)).all(contains)
                && self.tiles.iter().all(|tile| on_grain(&tile.start) && on_grain(&tile.end) && tile.end <= axis.size)
                && self.tiles.windows(2).all(|w| w[0].start <= w[1].start && w[0].end <= w[1].end && w[0] != w[1]);
        ascending && ends && cuts.iter().all(on_grain) && tiles
    }
}

/// Splits the operators in `shardings`; the others stay whole, but for those that depend on parameters alone: each of their
/// readers has a copy.
///
/// # Errors
/// If an operator cannot be split as specified.
pub fn shard_graph(graph: &Graph, shardings: &BTreeMap<OperatorId, Sharding>) -> Result<Sharded, SplitError> {
    if shardings.is_empty() {
        let whole = |(operator, _)| Role::Compute(Shard { operator, index: 0 });
        return Ok(Sharded { graph: graph.clone(), roles: graph.operators().map(whole).collect() });
    }
    let mut rewriter = GraphRewriter::new(graph);
    rewriter.copy_constants();
    for (id, operator) in graph.operators() {
        if rewriter.is_copied_operator(id) {
            continue;
        }
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
        let axis = axis(self.original, operator, sharding.axis)?;
        if !sharding.fits(&axis) {
            let Sharding { cuts, tiles, .. } = sharding.clone();
            let (grain, size) = (axis.grain, axis.size);
            return Err(match Sharding::disjoint(sharding.axis, cuts.clone()).fits(&axis) {
                true => SplitError::Tiles { op, cuts, tiles, grain },
                false => SplitError::Cuts { op, cuts, grain, size },
            });
        }
        let ranges = sharding.ranges();
        let carried = axis.carried.map(|carried| self.partial_sums(operator, carried, ranges.len())).transpose()?;
        for (index, range) in (0u32..).zip(&ranges) {
            let shard = Shard { operator: id, index };
            let partial = carried.as_ref().and_then(|(tensor, sums)| Some((*tensor, *sums.get(index as usize)?)));
            if let Some((_, sum)) = partial
                && index > 0
                && axis.carried.is_some_and(|carried| carried.is_offset)
            {
                operator.outputs.iter().for_each(|output| self.shards[output.0 as usize].push(sum));
                continue;
            }
            let call = axis.shard(self.original, operator, range)?;
            self.own = Some(index as usize);
            let mut copy = operator.clone();
            copy.args = map_args(operator, &call.operands, |tensor, need| match partial {
                Some((of, sum)) if of == tensor => Ok(sum.tensor),
                _ => self.read(tensor, need, Role::Prepare(shard)),
            })?;
            let types = call.apply(&mut copy);
            let outputs = self.add(copy, &types, Role::Compute(shard));
            for (old, new) in operator.outputs.iter().zip(outputs) {
                let name = format!("{}[{}..{}]", self.original.tensor(*old).name, range.start, range.end);
                self.out.graph.tensor_mut(new).name = name.into();
                self.shards[old.0 as usize].push(ShardTensor { tensor: new, producer: Some(shard) });
            }
        }
        self.own = None;
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

    /// The operand whose partial sums `operator` passes on, and the partial sum of each of its `shards`.
    fn partial_sums(
        &self,
        operator: &Operator,
        carried: Carried,
        shards: usize,
    ) -> Result<(TensorId, Vec<ShardTensor>), SplitError> {
        let partial = |tensor: &TensorId| {
            let sums = &self.shards[tensor.0 as usize];
            self.layouts[tensor.0 as usize] == ShardLayout::Partial && sums.len() == shards
        };
        let Carried { operand, .. } = carried;
        let found = operator.operands().nth(operand).filter(partial);
        let refused = || SplitError::Carried { op: operator.name.to_string(), shards, operand };
        found.map(|tensor| (tensor, self.shards[tensor.0 as usize].clone())).ok_or_else(refused)
    }
}
