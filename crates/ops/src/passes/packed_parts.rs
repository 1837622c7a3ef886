//! Operands that an operator takes apart by slices of one axis, as attention does with queries, keys and values that one product
//! projects: a shard reads the same share of each part.

use std::{ops::Range, sync::Arc};

use edgecut_graph::{Attr, Graph, OperatorId, Origin, TensorId};

use crate::{
    passes::range_maps::{applied, samples},
    split::{AccessMap, Join, PackedAxis, RangeFn, SplitAxis, gcd, scaled},
};

/// One of the slices that a decomposition takes of an input.
pub(super) struct InputSlice {
    pub input: TensorId,
    /// The operator that slices it.
    operator: OperatorId,
    axis: usize,
    begin: u64,
    end: u64,
    /// From the range of the shard to that of the part.
    steps: Vec<RangeFn>,
}

/// How shards read an input in parts.
pub(super) struct PackedSplit {
    pub access: AccessMap,
    /// Refined so that each part is cut at whole positions.
    pub grain: u64,
    /// The operators that slice it, each with its split and the maps from the range of the shard to its own.
    pub slices: Vec<(OperatorId, Arc<SplitAxis>, Vec<RangeFn>)>,
}

impl InputSlice {
    /// What operator `id` reads if shards need the range `steps` of its `outputs` (by number: the axis). `None` if it does not slice
    /// an input along that axis.
    pub fn of(inner: &Graph, id: OperatorId, outputs: &[(usize, usize)], steps: Vec<RangeFn>) -> Option<InputSlice> {
        let (operator, [(0, axis)]) = (inner.operator(id), outputs) else { return None };
        let input = operator.operands().next()?;
        let only = |name: &str| match operator.attrs.get(name)? {
            Attr::List(entries) => match entries[..] {
                [Attr::Int(entry)] => u64::try_from(entry).ok(),
                _ => None,
            },
            _ => None,
        };
        let is_of_input = operator.name == "strided_slice" && matches!(inner.tensor(input).origin, Origin::Input);
        if !is_of_input || only("axes")? != *axis as u64 || only("strides")? != 1 {
            return None;
        }
        Some(InputSlice { input, operator: id, axis: *axis, begin: only("begin")?, end: only("end")?, steps })
    }
}

/// How shards of an axis of `size` positions, cut at multiples of `grain`, read the input of `parts`. `None` if the slices do not cover
/// its axis without gap or overlap, or shards read different fractions of them.
pub(super) fn packed_split(
    inner: &Graph,
    mut parts: Vec<&InputSlice>,
    (size, grain): (u64, u64),
) -> Option<PackedSplit> {
    parts.sort_by_key(|part| part.begin);
    let (input, axis) = parts.first().map(|part| (part.input, part.axis))?;
    let total = inner.tensor(input).ty.shape.get(axis)?.get()?;
    let ends = parts.iter().map(|part| part.end);
    let begins = parts.iter().skip(1).map(|part| part.begin).chain([total]);
    let is_whole = parts[0].begin == 0 && ends.eq(begins) && parts.iter().all(|part| part.axis == axis);
    let widths: Vec<u64> = parts.iter().map(|part| part.end.saturating_sub(part.begin)).collect();
    let refine = |grain: u64, width: &u64| {
        let positions = size / gcd(*width, size);
        grain.checked_mul(positions / gcd(grain, positions))
    };
    let grain = widths.iter().try_fold(grain, refine).filter(|grain| *grain < size && size.is_multiple_of(*grain))?;
    let is_proportional = |(part, width): (&&InputSlice, &u64)| {
        let share = scaled(*width, size);
        samples(size, grain).iter().all(|range| applied(&part.steps, range) == share(range))
    };
    if !is_whole || !parts.iter().zip(&widths).all(is_proportional) {
        return None;
    }
    let units = size / grain;
    let packed = PackedAxis::new(&widths.iter().map(|width| width / units).collect::<Vec<_>>())?;
    let access = |per: u64| AccessMap { axis, packed: Some(packed.clone()), map: Arc::new(scaled(total, per)) };
    let slice = |(part, width): (&&InputSlice, &u64)| {
        // The slice of a shard's operand: as long as its part, after the parts before it.
        let (width, offset, end) = (*width, part.begin, part.end);
        let at = move |position: u64| {
            move |range: &Range<u64>| {
                let position = scaled(position, width)(&(0..range.end - range.start)).end;
                Attr::List([Attr::Int(position as i64)].into())
            }
        };
        let sides = Join::Axis(vec![Some(axis)]);
        let mut split = SplitAxis::new(sides, width, 1).attr("begin", at(offset)).attr("end", at(end));
        split.operands = vec![Some(access(width))];
        let to_part: RangeFn = Arc::new(scaled(width, size));
        (part.operator, Arc::new(split), vec![to_part])
    };
    Some(PackedSplit { access: access(size), grain, slices: parts.iter().zip(&widths).map(slice).collect() })
}
