//! The split axes of an operator: which ranges of its operands a shard needs, and how shard results combine.

use std::{ops::Range, sync::Arc};

use edgecut_graph::{Attr, Graph, Operator, TensorId, TensorType};

use super::{linear::Carried, packed_axis::PackedAxis};

/// Maximum number of replicas of an operator: as many devices as fit in the sets of a plan's search ([`u64`]).
pub const MAX_REPLICAS: u64 = 64;

/// An axis along which a call can be split: an axis of its results, or a reduction axis.
///
/// Invariant that every declaration keeps: the shards' results, combined as [`Join`] says, equal the result of the
/// unsplit call.
pub struct SplitAxis {
    pub join: Join,
    /// Length of the axis; a shard computes a range of it.
    pub size: u64,
    /// Shard boundaries are multiples of this.
    pub grain: u64,
    /// For each operand (tuples flattened) the range that a shard needs; `None` if it needs the whole operand.
    pub operands: Vec<Option<AccessMap>>,
    /// Attributes whose values differ in a shard.
    pub attrs: Vec<(&'static str, AttrFn)>,
    /// The operand whose partial sums shards pass on, if any.
    pub carried: Option<Carried>,
    /// For a composite operator, the split of its decomposition.
    pub decomposition: Option<Arc<DecompositionSplit>>,
}

/// The split of a decomposition that belongs to a split axis of the composite operator.
#[derive(Debug)]
pub struct DecompositionSplit {
    pub graph: Arc<Graph>,
    /// By operator of `graph`; `None` for one that every shard computes whole.
    pub operators: Vec<Option<OperatorSplit>>,
}

/// How one operator of a decomposition is split.
pub struct OperatorSplit {
    pub axis: Arc<SplitAxis>,
    /// Maps a range of the composite operator's axis to the range of `axis`.
    pub map: RangeFn,
}

/// How shard results combine to the result of the whole operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Join {
    /// Concatenated along this axis of each output, of which a shard computes a range in proportion to its own: see
    /// [`SplitAxis::output_range`]. `None` for an output that every shard computes whole.
    Axis(Vec<Option<usize>>),
    /// Added elementwise: each shard reduces over a range of the reduction axis.
    Sum,
    /// Not at all: every shard computes all of each output.
    Replicated,
}

/// Maps a range of the split axis to the range of one operand's axis that a shard reads.
#[derive(Clone)]
pub struct AccessMap {
    /// The operand's axis.
    pub axis: usize,
    /// If the axis is packed: ranges are in interleaved order.
    pub packed: Option<PackedAxis>,
    pub map: RangeFn,
}

pub type RangeFn = Arc<dyn Fn(&Range<u64>) -> Range<u64> + Send + Sync>;
pub type AttrFn = Box<dyn Fn(&Range<u64>) -> Attr + Send + Sync>;

impl SplitAxis {
    /// A split whose shards need all of each of `operands` operands, until narrowed by the methods below.
    pub fn new(join: Join, size: u64, operands: usize) -> SplitAxis {
        let operands = (0..operands).map(|_| None).collect();
        SplitAxis { join, size, grain: 1, operands, attrs: Vec::new(), carried: None, decomposition: None }
    }

    /// The axis whose positions are replicas: shards that each compute all of `operator`, for the readers on their device
    /// (broadcast in the terms of OneFlow's SBP, replicated in those of GSPMD).
    pub fn of_replicas(operator: &Operator) -> SplitAxis {
        SplitAxis::new(Join::Replicated, MAX_REPLICAS, operator.operands().count())
    }

    /// A shard reads its own range of `axis` of operand `index`.
    pub(crate) fn operand(self, index: usize, axis: usize) -> SplitAxis {
        self.access(index, axis, |range| range.clone())
    }

    /// A shard reads the range `map` of `axis` of operand `index`.
    pub(crate) fn access(
        mut self,
        index: usize,
        axis: usize,
        map: impl Fn(&Range<u64>) -> Range<u64> + Send + Sync + 'static,
    ) -> SplitAxis {
        if let Some(operand) = self.operands.get_mut(index) {
            *operand = Some(AccessMap { axis, packed: None, map: Arc::new(map) });
        }
        self
    }

    /// A shard reads its range scaled by `times / per` along `axis` of operand `index`. Sets a grain at which the
    /// scaled boundaries are integers.
    pub(crate) fn scaled(self, index: usize, axis: usize, times: u64, per: u64) -> SplitAxis {
        let (times, per) = (times.max(1), per.max(1));
        let grain = per / gcd(times, per);
        self.access(index, axis, scaled(times, per)).grain(grain)
    }

    /// A shard's attribute `key` is `value` of its range.
    pub(crate) fn attr(
        mut self,
        key: &'static str,
        value: impl Fn(&Range<u64>) -> Attr + Send + Sync + 'static,
    ) -> SplitAxis {
        self.attrs.push((key, Box::new(value)));
        self
    }

    /// Shard boundaries are multiples of `grain`, and of every grain set before.
    pub(crate) fn grain(mut self, grain: u64) -> SplitAxis {
        let grain = grain.max(1);
        self.grain = self.grain / gcd(self.grain, grain) * grain;
        self
    }

    /// The range of an output axis of `size` positions that the shard of `range` computes, scaled if the sizes differ: KV heads of a
    /// cache and channels of the attention result, for example.
    pub fn output_range(&self, size: u64, range: &Range<u64>) -> Range<u64> {
        match size == self.size {
            true => range.clone(),
            false => scaled(size, self.size)(range),
        }
    }

    /// The axis along which output `index`, of type `ty`, is concatenated, if it has as many positions as this axis.
    pub fn aligned_output_axis(&self, index: usize, ty: &TensorType) -> Option<usize> {
        let Join::Axis(outputs) = &self.join else { return None };
        let along = outputs.get(index).copied().flatten()?;
        (ty.shape.get(along)?.get()? == self.size).then_some(along)
    }

    /// Whether `other`, an axis of the same operator on operands of other sizes, cuts the same dimensions at the same positions.
    pub(crate) fn cuts_same(&self, other: &SplitAxis) -> bool {
        let dimension = |access: &Option<AccessMap>| access.as_ref().map(|access| (access.axis, access.packed.clone()));
        let keys = |axis: &SplitAxis| axis.attrs.iter().map(|(key, _)| *key).collect::<Vec<_>>();
        // Which axis of its producer an operand is a partial sum along is a number, and differs with the sizes.
        let carried = |axis: &SplitAxis| axis.carried.map(|carried| (carried.operand, carried.is_offset));
        (&self.join, self.size, self.grain) == (&other.join, other.size, other.grain)
            && carried(self) == carried(other)
            && self.operands.iter().map(dimension).eq(other.operands.iter().map(dimension))
            && keys(self) == keys(other)
    }

    /// Whether positions are independent and those of the operands that are sliced, so that a shard of `operator` may compute any subset
    /// of them, and the size is a multiple of the unit.
    pub fn supports_packed(&self, graph: &Graph, operator: &Operator, packed: &PackedAxis) -> bool {
        let ranges: Vec<Range<u64>> = [0..1, 0..self.size / 2, self.size / 2..self.size].into();
        let is_own = |(operand, access): (TensorId, &Option<AccessMap>)| {
            access.as_ref().is_none_or(|access| {
                let size = graph.tensor(operand).ty.shape.get(access.axis).and_then(|dim| dim.get());
                let is_same = ranges.iter().all(|range| (access.map)(range) == *range);
                access.packed.is_none() && size == Some(self.size) && is_same
            })
        };
        let by_length = |(_, value): &(&'static str, AttrFn)| {
            let half = self.size / 2;
            half == 0 || value(&(0..half)) == value(&(self.size - half..self.size))
        };
        matches!(self.join, Join::Axis(_))
            && self.grain == 1
            && self.carried.is_none()
            && self.size.is_multiple_of(packed.unit())
            && operator.operands().zip(&self.operands).all(is_own)
            && self.attrs.iter().all(by_length)
    }

    /// Shard boundaries, from 0 to the size, that divide the axis in about these fractions (of any sum), rounded to
    /// the grain. Shards may be empty.
    pub fn cuts(&self, fractions: &[f64]) -> Vec<u64> {
        self.cuts_by(self.grain, fractions)
    }

    /// The same, rounded to multiples of `grain`.
    pub fn cuts_by(&self, grain: u64, fractions: &[f64]) -> Vec<u64> {
        let total: f64 = fractions.iter().sum();
        let steps = self.size as f64 / grain as f64;
        let mut sum = 0.0;
        let inner = fractions.iter().take(fractions.len().saturating_sub(1)).map(|fraction| {
            sum += fraction / total;
            ((sum * steps).round().max(0.0) as u64).saturating_mul(grain).min(self.size)
        });
        let mut cuts = vec![0];
        cuts.extend(inner);
        cuts.push(self.size);
        cuts
    }
}

impl std::fmt::Debug for OperatorSplit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.axis.fmt(f)
    }
}

impl std::fmt::Debug for SplitAxis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SplitAxis({:?}, {} by {})", self.join, self.size, self.grain)
    }
}

/// Maps a range to the one whose ends are `times / per` of its own.
pub(crate) fn scaled(times: u64, per: u64) -> impl Fn(&Range<u64>) -> Range<u64> + Send + Sync + 'static {
    let at = move |position: u64| (u128::from(position) * u128::from(times) / u128::from(per.max(1))) as u64;
    move |range| at(range.start)..at(range.end)
}

/// Greatest common divisor, at least 1.
pub fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_snap_to_the_grain() {
        let axis = |size, grain| SplitAxis { grain, ..SplitAxis::new(Join::Sum, size, 0) };
        assert_eq!(axis(10, 1).cuts(&[0.5, 0.5]), [0, 5, 10]);
        assert_eq!(axis(10, 1).cuts(&[3.0, 1.0]), [0, 8, 10], "fractions are normalised");
        assert_eq!(axis(16, 8).cuts(&[0.3, 0.3, 0.4]), [0, 8, 8, 16], "a shard may be empty");
        assert_eq!(axis(10, 4).cuts(&[0.99, 0.01]), [0, 8, 10], "the last shard takes the remainder");
    }

    #[test]
    fn scaled_access_sets_a_grain_with_integer_boundaries() {
        for (times, per, grain, range, read) in
            [(2, 1, 1, 3..5, 6..10), (1, 2, 2, 4..6, 2..3), (3, 2, 2, 2..6, 3..9), (4, 6, 3, 3..9, 2..6)]
        {
            let axis = SplitAxis::new(Join::Sum, 12, 1).scaled(0, 1, times, per);
            assert_eq!(axis.grain, grain, "{times}/{per}");
            let access = axis.operands[0].as_ref().unwrap();
            assert_eq!((access.axis, (access.map)(&range)), (1, read), "{times}/{per}");
        }
    }

    #[test]
    fn grains_combine_to_their_least_common_multiple() {
        assert_eq!(SplitAxis::new(Join::Sum, 24, 0).grain(4).grain(6).grain(0).grain, 12);
    }
}
