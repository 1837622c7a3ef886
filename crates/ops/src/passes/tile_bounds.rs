//! Bounds inference for tiling: the range of every operator that a tile of a segment's last operator requires.
//!
//! As in Halide, requirements propagate from the last operator of a segment backwards: the ranges that tiles of the
//! readers access determine the ranges that tiles of the producer compute.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use edgecut_graph::{Graph, Operator, OperatorId, TensorId, constant_operators, is_constant};

use crate::{
    passes::axes::axes,
    split::{Join, SplitAxis},
};

/// The split axes of all operators of a graph, and the readers of its tensors.
pub struct SplitAxes<'a> {
    pub graph: &'a Graph,
    axes: Vec<Vec<SplitAxis>>,
    /// Operators that depend on parameters alone.
    constant: Vec<bool>,
    readers: Vec<Vec<OperatorId>>,
}

/// The ranges that an operator computes in the tiles of its segment.
#[derive(Debug, Clone)]
pub struct TileRanges {
    /// Index of the axis among the operator's split axes.
    index: usize,
    /// Length of the axis.
    pub size: u64,
    /// By tile; neighbours may overlap.
    pub ranges: Vec<Range<u64>>,
    /// For each output the axis that the ranges are of; `None` for an output that every tile computes whole.
    pub(crate) outputs: Vec<Option<usize>>,
}

/// The tile ranges of a segment's operators, inferred from its last operator backwards.
pub struct BoundsInference<'s, 'a> {
    axes: &'s SplitAxes<'a>,
    tiles: u64,
    axis: usize,
    required: HashMap<TensorId, Required>,
    members: HashSet<OperatorId>,
    ranges: HashMap<OperatorId, TileRanges>,
}

/// What the tiles read of a tensor.
#[derive(Debug, Clone)]
enum Required {
    Whole,
    Ranges { axis: usize, ranges: Vec<Range<u64>> },
}

/// What one tile of an operator reads of an operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileRead {
    pub tensor: TensorId,
    /// The range of one axis; `None` for the whole tensor.
    pub range: Option<Range<u64>>,
    /// Length of that axis; 1 for the whole tensor.
    pub size: u64,
}

impl<'a> SplitAxes<'a> {
    pub fn of(graph: &'a Graph) -> SplitAxes<'a> {
        let constant = constant_operators(graph);
        let axes = graph.operators().map(|(_, operator)| axes(graph, operator)).collect();
        SplitAxes { graph, axes, constant, readers: graph.consumers() }
    }

    /// Whether an operator depends on parameters alone. Such an operator is not tiled but duplicated in every tile that
    /// reads it.
    pub fn is_constant(&self, operator: OperatorId) -> bool {
        self.constant[operator.0 as usize]
    }

    /// The axes of the first output of `operator` along which it can be tiled.
    pub fn result_axes(&self, operator: OperatorId) -> Vec<usize> {
        let along = |axis: &SplitAxis| match &axis.join {
            Join::Axis(outputs) => outputs.first().copied().flatten(),
            Join::Sum | Join::Replicated => None,
        };
        self.axes[operator.0 as usize].iter().filter_map(along).collect()
    }

    /// Number of split axes of `operator`.
    pub(crate) fn count(&self, operator: OperatorId) -> usize {
        self.axes[operator.0 as usize].len()
    }

    fn is_parameter(&self, tensor: TensorId) -> bool {
        is_constant(self.graph, &self.constant, tensor)
    }

    fn is_read_outside(&self, tensor: TensorId, members: &HashSet<OperatorId>) -> bool {
        self.graph.outputs.contains(&tensor)
            || self.readers[tensor.0 as usize].iter().any(|reader| !members.contains(reader))
    }
}

impl<'s, 'a> BoundsInference<'s, 'a> {
    /// An empty segment, computed in `tiles` along `axis` of the first output of its last operator.
    pub fn new(axes: &'s SplitAxes<'a>, tiles: u64, axis: usize) -> BoundsInference<'s, 'a> {
        let (required, members, ranges) = Default::default();
        BoundsInference { axes, tiles, axis, required, members, ranges }
    }

    /// Prepends an operator to the segment. Returns `false` if its tiles cannot provide what the later operators read;
    /// the inference is then invalid.
    pub fn push(&mut self, id: OperatorId) -> bool {
        self.members.insert(id);
        self.axes.is_constant(id) || self.infer(id).is_some()
    }

    /// The tile ranges of an operator; `None` for one that depends on parameters alone.
    pub fn of(&self, operator: OperatorId) -> Option<&TileRanges> {
        self.ranges.get(&operator)
    }

    /// The split axis of an operator, and its range in tile number `tile`.
    pub(crate) fn tile(&self, operator: OperatorId, tile: usize) -> Option<(&SplitAxis, &Range<u64>)> {
        let ranges = self.ranges.get(&operator)?;
        Some((&self.axes.axes[operator.0 as usize][ranges.index], &ranges.ranges[tile]))
    }

    /// What tile number `tile` of an operator reads of its operands, parameters excepted.
    pub fn reads(&self, id: OperatorId, tile: usize) -> impl Iterator<Item = TileRead> {
        let graph = self.axes.graph;
        let split = self.tile(id, tile);
        let access = move |index: usize| {
            let (axis, range) = split?;
            Some((axis.operands.get(index)?.as_ref().filter(|access| access.packed.is_none())?, range))
        };
        graph.operator(id).operands().enumerate().filter_map(move |(index, tensor)| {
            let range = access(index).map(|(access, range)| {
                let size = graph.tensor(tensor).ty.shape.get(access.axis).and_then(|d| d.get()).unwrap_or(1);
                ((access.map)(range), size)
            });
            let (range, size) = range.map_or((None, 1), |(range, size)| (Some(range), size));
            (!self.axes.is_parameter(tensor)).then_some(TileRead { tensor, range, size })
        })
    }

    fn infer(&mut self, id: OperatorId) -> Option<()> {
        let axes = self.axes;
        let operator = axes.graph.operator(id);
        let split = &axes.axes[id.0 as usize];
        let (index, mut ranges) = match self.required_ranges(operator, split)? {
            Some(required) => required,
            // No member reads it: it is a result of the segment.
            None => {
                let index = axis_index(axes.graph, operator, split, (0, self.axis))?;
                (index, equal_ranges(split[index].size, split[index].grain, self.tiles))
            }
        };
        let axis = &split[index];
        if axis.join == Join::Sum {
            return None;
        }
        let along =
            |(index, output): (usize, &TensorId)| axis.aligned_output_axis(index, &axes.graph.tensor(*output).ty);
        let outputs: Vec<Option<usize>> = operator.outputs.iter().enumerate().map(along).collect();
        let mut read_outside = false;
        for (output, along) in operator.outputs.iter().zip(&outputs) {
            let outside = axes.is_read_outside(*output, &self.members);
            if (outside || self.required.contains_key(output)) && along.is_none() {
                return None;
            }
            read_outside |= outside;
        }
        for range in &mut ranges {
            *range = range.start - range.start % axis.grain..range.end.next_multiple_of(axis.grain).min(axis.size);
        }
        if read_outside {
            // The tiles must cover the axis.
            let mut next = axis.size;
            for range in ranges.iter_mut().rev() {
                range.end = range.end.max(next);
                next = range.start;
            }
            ranges.first_mut()?.start = 0;
        }
        if ranges.iter().any(Range::is_empty) {
            return None;
        }
        self.require_operands(operator, axis, &ranges)?;
        self.ranges.insert(id, TileRanges { index, size: axis.size, ranges, outputs });
        Some(())
    }

    /// The split axis and the ranges that the later members read of an operator's outputs; `Some(None)` if they read
    /// none, `None` if their reads are not ranges of one axis.
    #[allow(clippy::type_complexity)]
    fn required_ranges(&self, operator: &Operator, split: &[SplitAxis]) -> Option<Option<(usize, Vec<Range<u64>>)>> {
        let mut required: Option<(usize, Vec<Range<u64>>)> = None;
        for (output, tensor) in operator.outputs.iter().enumerate() {
            match self.required.get(tensor) {
                None => {}
                Some(Required::Whole) => return None,
                Some(Required::Ranges { axis, ranges }) => {
                    let index = axis_index(self.axes.graph, operator, split, (output, *axis))?;
                    required = match required {
                        None => Some((index, ranges.clone())),
                        Some((before, hull)) if before == index => Some((index, hulls(&hull, ranges))),
                        Some(_) => return None,
                    };
                }
            }
        }
        Some(required)
    }

    /// Adds what the tiles of an operator read to the requirements. `None` if an operand is produced by a later member.
    fn require_operands(&mut self, operator: &Operator, axis: &SplitAxis, ranges: &[Range<u64>]) -> Option<()> {
        for (tensor, access) in operator.operands().zip(&axis.operands) {
            if self.axes.is_parameter(tensor) {
                continue;
            }
            if self.axes.graph.producer(tensor).is_some_and(|producer| self.members.contains(&producer)) {
                return None;
            }
            let read = match access.as_ref().filter(|access| access.packed.is_none()) {
                None => Required::Whole,
                Some(access) => {
                    Required::Ranges { axis: access.axis, ranges: ranges.iter().map(&*access.map).collect() }
                }
            };
            let required = match (self.required.remove(&tensor), read) {
                (None, read) => read,
                (Some(Required::Ranges { axis: a, ranges: x }), Required::Ranges { axis: b, ranges: y }) if a == b => {
                    Required::Ranges { axis: a, ranges: hulls(&x, &y) }
                }
                _ => Required::Whole,
            };
            self.required.insert(tensor, required);
        }
        Some(())
    }
}

/// Index of the one of `axes` of `operator` whose shards are ranges of `axis` of output number `output`.
fn axis_index(graph: &Graph, operator: &Operator, axes: &[SplitAxis], (output, axis): (usize, usize)) -> Option<usize> {
    let ty = &graph.tensor(*operator.outputs.get(output)?).ty;
    axes.iter().position(|split| split.aligned_output_axis(output, ty) == Some(axis))
}

/// Ranges of equal length, the last ones shorter or empty: inner tiles are then identical computations.
fn equal_ranges(size: u64, grain: u64, tiles: u64) -> Vec<Range<u64>> {
    let step = size.div_ceil(tiles.max(1)).next_multiple_of(grain);
    (0..tiles).map(|tile| (tile * step).min(size)..((tile + 1) * step).min(size)).collect()
}

fn hulls(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    a.iter().zip(b).map(|(a, b)| a.start.min(b.start)..a.end.max(b.end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{Attr, Attrs, DType, Origin, TensorType};

    #[test]
    fn equal_ranges_are_multiples_of_the_grain() {
        for (size, grain, tiles, want) in [
            (10, 1, 3, &[(0, 4), (4, 8), (8, 10)][..]),
            (10, 4, 2, &[(0, 8), (8, 10)]),
            (4, 4, 3, &[(0, 4), (4, 4), (4, 4)]),
            (9, 1, 1, &[(0, 9)]),
        ] {
            let ranges = equal_ranges(size, grain, tiles).into_iter().map(|range| (range.start, range.end));
            assert_eq!(ranges.collect::<Vec<_>>(), want, "{size} by {grain} in {tiles}");
        }
    }

    #[test]
    fn tiles_of_a_pooling_require_a_halo_of_its_operand() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[1, 2, 8, 8]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let relu = graph.add_operator(Operator::new("nn.relu", [x]), std::slice::from_ref(&ty));
        let list = |entries: &[i64]| Attr::List(entries.iter().map(|n| Attr::Int(*n)).collect());
        let attrs: Attrs =
            [("pool_size".into(), list(&[3, 3])), ("padding".into(), list(&[1, 1, 1, 1]))].into_iter().collect();
        let y = graph.operator(relu).outputs[0];
        let pool = graph.add_operator(Operator::new("nn.max_pool2d", [y]).with_attrs(attrs), &[ty]);
        graph.outputs = graph.operator(pool).outputs.clone();
        let axes = SplitAxes::of(&graph);
        assert!(axes.result_axes(pool).contains(&2));
        let mut bounds = BoundsInference::new(&axes, 2, 2);
        assert!(bounds.push(pool) && bounds.push(relu));
        assert_eq!(bounds.of(pool).unwrap().ranges, [0..4, 4..8]);
        assert_eq!(bounds.of(relu).unwrap().ranges, [0..5, 3..8]);
        let reads: Vec<TileRead> = bounds.reads(relu, 1).collect();
        assert_eq!(reads, [TileRead { tensor: x, range: Some(3..8), size: 8 }]);
    }
}
