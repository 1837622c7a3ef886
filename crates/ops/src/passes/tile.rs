//! Tiles segments of a graph: the operators of a segment are computed tile by tile, so that the tensors inside the segment
//! never exist whole.
//!
//! A tile computes everything it needs: where windows reach beyond a tile (the halo), neighbouring tiles compute the same
//! elements twice ("overlapped tiling"). [`BoundsInference`] finds what each tile needs. The result is an ordinary graph,
//! as in [`shard_graph`](crate::passes::shard_graph).

use std::{collections::HashMap, ops::Range};

use edgecut_graph::{Graph, OperatorId, TensorId, TensorType};
use serde::{Deserialize, Serialize};

pub use crate::passes::tile_bounds::{BoundsInference, SplitAxes, TileRanges, TileRead};
use crate::passes::{
    rewriter::{GraphRewriter, Role, ShardLayout, ShardTensor, Sharded, map_args, undefined},
    shard::{Shard, Slice, SplitError},
};

/// Consecutive operators of a topological order, computed tile by tile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TiledSegment {
    pub operators: Vec<OperatorId>,
    /// Number of tiles; 1 for a segment that is not tiled.
    #[serde(rename = "parts")]
    pub tiles: u64,
    /// The tiled axis of the first output of the last operator. Ignored with a single tile.
    pub axis: usize,
}

/// Rewrites a graph with its operators in the order of `segments`, which together contain every operator once, each
/// segment tile by tile. [`Role`]s number the tiles of an operator as its shards.
///
/// # Errors
/// If a segment cannot be tiled as specified, or a tile reads no element of some operand.
pub fn tile_graph(axes: &SplitAxes<'_>, segments: &[TiledSegment]) -> Result<Sharded, SplitError> {
    let graph = axes.graph;
    let mut rewriter = GraphRewriter::new(graph, &HashMap::new());
    for segment in segments {
        match segment.tiles {
            1 => whole_segment(&mut rewriter, graph, &segment.operators)?,
            _ => tiled_segment(&mut rewriter, axes, segment)?,
        }
    }
    for output in &graph.outputs {
        rewriter.materialise(*output, Role::Output)?;
        let new = rewriter.read(*output, None, Role::Output)?;
        rewriter.out.graph.outputs.push(new);
    }
    Ok(rewriter.out)
}

fn whole_segment(rewriter: &mut GraphRewriter<'_>, graph: &Graph, operators: &[OperatorId]) -> Result<(), SplitError> {
    for &id in operators {
        let operator = graph.operator(id);
        let role = Role::Prepare(Shard { operator: id, index: 0 });
        operator.operands().try_for_each(|tensor| rewriter.materialise(tensor, role))?;
        rewriter.keep(id, operator)?;
    }
    Ok(())
}

fn tiled_segment<'g>(
    rewriter: &mut GraphRewriter<'g>,
    axes: &SplitAxes<'g>,
    segment: &TiledSegment,
) -> Result<(), SplitError> {
    let graph = axes.graph;
    let mut bounds = BoundsInference::new(axes, segment.tiles, segment.axis);
    if let Some(refused) = segment.operators.iter().rev().find(|id| !bounds.push(**id)) {
        let op = graph.operator(*refused).name.to_string();
        return Err(SplitError::NoAxis { op, axis: segment.axis, axes: axes.count(*refused) });
    }
    for tile in 0..segment.tiles as usize {
        TileWriter { rewriter, bounds: &bounds, tile, local: HashMap::new() }.write(&segment.operators)?;
    }
    for &id in &segment.operators {
        let Some(tiles) = bounds.of(id) else { continue };
        for (output, axis) in graph.operator(id).outputs.iter().zip(&tiles.outputs) {
            if let Some(axis) = *axis {
                let layout = ShardLayout::Concat { side: axis.into(), ranges: tiles.ranges.clone() };
                rewriter.layouts[output.0 as usize] = layout;
            }
        }
    }
    Ok(())
}

impl GraphRewriter<'_> {
    /// Combines the shards of a tensor to one tensor, for all further readers.
    fn materialise(&mut self, tensor: TensorId, role: Role) -> Result<(), SplitError> {
        let at = tensor.0 as usize;
        if self.layouts[at] != ShardLayout::Whole {
            let whole = self.read(tensor, None, role)?;
            self.out.graph.tensor_mut(whole).name = self.original.tensor(tensor).name.clone();
            self.shards[at] = vec![ShardTensor { tensor: whole, producer: None }];
            self.layouts[at] = ShardLayout::Whole;
        }
        Ok(())
    }
}

/// Writes one tile of a segment.
struct TileWriter<'m, 'g, 'b> {
    rewriter: &'m mut GraphRewriter<'g>,
    bounds: &'b BoundsInference<'b, 'g>,
    tile: usize,
    /// The tensors that this tile has computed.
    local: HashMap<TensorId, LocalTensor>,
}

/// A tensor computed by a tile, and the axis and range of the original tensor; `None` if it is whole.
type LocalTensor = (TensorId, Option<(usize, Range<u64>)>);

impl TileWriter<'_, '_, '_> {
    fn write(&mut self, operators: &[OperatorId]) -> Result<(), SplitError> {
        let graph = self.rewriter.original;
        for &id in operators {
            let operator = graph.operator(id);
            let shard = Shard { operator: id, index: self.tile as u32 };
            let mut copy = operator.clone();
            let (types, range) = match self.bounds.tile(id, self.tile) {
                None => {
                    copy.args = map_args(operator, &[], |tensor, need| self.operand(tensor, need, shard))?;
                    (operator.outputs.iter().map(|t| graph.tensor(*t).ty.clone()).collect::<Vec<TensorType>>(), None)
                }
                Some((axis, range)) => {
                    let call = axis.shard(graph, operator, range)?;
                    copy.args = map_args(operator, &call.operands, |tensor, need| self.operand(tensor, need, shard))?;
                    (call.apply(&mut copy), Some(range))
                }
            };
            let outputs = self.rewriter.add(copy, &types, Role::Compute(shard));
            for (index, (old, new)) in operator.outputs.iter().zip(outputs).enumerate() {
                let along = |range: &Range<u64>| {
                    let axis = self.bounds.of(id)?.outputs.get(index).copied().flatten()?;
                    Some((axis, range.clone()))
                };
                let axis = range.and_then(along);
                let suffix =
                    axis.as_ref().map_or(String::new(), |(_, range)| format!("[{}..{}]", range.start, range.end));
                self.rewriter.out.graph.tensor_mut(new).name = format!("{}{suffix}", graph.tensor(*old).name).into();
                self.local.insert(*old, (new, axis.clone()));
                let shards = &mut self.rewriter.shards[old.0 as usize];
                if axis.is_some() || shards.is_empty() {
                    shards.push(ShardTensor { tensor: new, producer: Some(shard) });
                }
            }
        }
        Ok(())
    }

    /// An operand of the tile: computed by the tile itself, or read from outside the segment.
    fn operand(&mut self, tensor: TensorId, need: Option<&Slice>, shard: Shard) -> Result<TensorId, SplitError> {
        let role = Role::Prepare(shard);
        let Some((local, range)) = self.local.get(&tensor).cloned() else {
            if need.is_none() {
                self.rewriter.materialise(tensor, role)?;
            }
            return self.rewriter.read(tensor, need, role);
        };
        let own = ShardTensor { tensor: local, producer: None };
        match (need, range) {
            (None, _) => Ok(local),
            (Some(need), Some((axis, range))) if need.axis == axis => {
                // Bounds inference has computed `range` from the needs of all readers in the segment.
                let (Some(begin), Some(end)) = (need.begin.checked_sub(range.start), need.end.checked_sub(range.start))
                else {
                    return Err(undefined(tensor));
                };
                self.rewriter.slice(own, Some(&Slice::new(axis, begin..end)), role)
            }
            (need, _) => self.rewriter.slice(own, need, role),
        }
    }
}
