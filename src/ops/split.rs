//! How operators can be split: along which axes, and what of each operand a shard then needs.
//!
//! A family declares this next to its type rule, as a [`SplitFn`] in its operators' definitions. The law that every
//! declaration must keep: the shards' results, put together as [`Join`] says, are the whole's result.

use std::{ops::Range, sync::Arc};

use super::{TypeError, Typed};
use crate::graph::{Attr, Dim, TensorType};

/// Lists the ways in which a call can be split; all sizes that matter must be known.
pub type SplitFn = fn(&Typed<'_>) -> Result<Vec<SplitAxis>, TypeError>;

/// One way to split a call: along an axis of its results, or along an axis that it sums over.
pub struct SplitAxis {
    pub join: Join,
    /// Positions along the axis; a shard computes a range of them.
    pub size: u64,
    /// Shards begin and end at multiples of this.
    pub grain: u64,
    /// For each operand, tuples flattened, what a shard needs of it; `None` if that is all of it.
    pub operands: Vec<Option<Reach>>,
    /// Attributes that a shard has other values for.
    pub attrs: Vec<(&'static str, AttrFn)>,
}

/// How the results of shards make the whole's results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Join {
    /// Side by side along this axis of each output; `None` for an output that is the same in every shard.
    Axis(Vec<Option<usize>>),
    /// Added up: each shard has summed over a part of what the whole sums over.
    Sum,
}

/// What a shard needs of one operand: a range of its `axis`, given the shard's range of the split axis.
#[derive(Clone)]
pub struct Reach {
    pub axis: usize,
    pub of: RangeFn,
}

pub type RangeFn = Arc<dyn Fn(&Range<u64>) -> Range<u64> + Send + Sync>;
pub type AttrFn = Box<dyn Fn(&Range<u64>) -> Attr + Send + Sync>;

impl SplitAxis {
    /// A split along `axis` of every output, for which shards need all of every operand until told otherwise.
    pub(super) fn along(call: &Typed<'_>, axis: usize) -> SplitAxis {
        let outputs = call.out.tensors();
        let size = outputs.first().and_then(|t| t.shape.get(axis)).and_then(|d| d.get()).unwrap_or(0);
        SplitAxis::new(call, Join::Axis(vec![Some(axis); outputs.len()]), size)
    }

    /// A split along an axis of `size` that the call sums over.
    pub(super) fn summed(call: &Typed<'_>, size: Dim) -> SplitAxis {
        SplitAxis::new(call, Join::Sum, size.get().unwrap_or(0))
    }

    fn new(call: &Typed<'_>, join: Join, size: u64) -> SplitAxis {
        let operands = call.args.iter().map(|arg| arg.tensors().len()).sum();
        SplitAxis { join, size, grain: 1, operands: (0..operands).map(|_| None).collect(), attrs: Vec::new() }
    }

    /// A shard needs its own range of `axis` of operand `index`.
    pub(super) fn operand(self, index: usize, axis: usize) -> SplitAxis {
        self.reach(index, axis, |range| range.clone())
    }

    /// A shard needs the range that `of` gives of `axis` of operand `index`.
    pub(super) fn reach(
        mut self,
        index: usize,
        axis: usize,
        of: impl Fn(&Range<u64>) -> Range<u64> + Send + Sync + 'static,
    ) -> SplitAxis {
        if let Some(operand) = self.operands.get_mut(index) {
            *operand = Some(Reach { axis, of: Arc::new(of) });
        }
        self
    }

    /// A shard needs its range times `times / per` of `axis` of operand `index`; the grain becomes such that this
    /// is always a whole number.
    pub(super) fn scaled(self, index: usize, axis: usize, times: u64, per: u64) -> SplitAxis {
        let (times, per) = (times.max(1), per.max(1));
        let grain = per / gcd(times, per);
        self.reach(index, axis, move |range| range.start * times / per..range.end * times / per).grain(grain)
    }

    /// A shard's attribute `key` is what `of` gives.
    pub(super) fn attr(
        mut self,
        key: &'static str,
        of: impl Fn(&Range<u64>) -> Attr + Send + Sync + 'static,
    ) -> SplitAxis {
        self.attrs.push((key, Box::new(of)));
        self
    }

    /// Shards begin and end at multiples of `grain` (and of every grain asked for before).
    pub(super) fn grain(mut self, grain: u64) -> SplitAxis {
        let grain = grain.max(1);
        self.grain = self.grain / gcd(self.grain, grain) * grain;
        self
    }

    /// Where the axis is cut so that the shards get about these fractions of it: one boundary more than there are
    /// fractions, from 0 to the size. Shards may come out empty.
    pub fn cuts(&self, fractions: &[f64]) -> Vec<u64> {
        let total: f64 = fractions.iter().sum();
        let steps = self.size as f64 / self.grain as f64;
        let mut sum = 0.0;
        let inner = fractions.iter().take(fractions.len().saturating_sub(1)).map(|fraction| {
            sum += fraction / total;
            ((sum * steps).round().max(0.0) as u64).saturating_mul(self.grain).min(self.size)
        });
        let mut cuts = vec![0];
        cuts.extend(inner);
        cuts.push(self.size);
        cuts
    }
}

impl std::fmt::Debug for SplitAxis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SplitAxis({:?}, {} by {})", self.join, self.size, self.grain)
    }
}

pub(super) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

/// Every axis of a result that is computed element by element from operands broadcast against each other.
pub(super) fn elementwise(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let operands: Vec<usize> = (0..call.args.len()).collect();
    elementwise_on(call, &operands)
}

/// As [`elementwise`], where only some of the operands are broadcast and the others needed whole.
pub(super) fn elementwise_on(call: &Typed<'_>, operands: &[usize]) -> Result<Vec<SplitAxis>, TypeError> {
    let shape = &call.result()?.shape;
    let axis = |axis: usize| {
        let split = SplitAxis::along(call, axis);
        operands.iter().fold(split, |split, index| match call.tensor(*index) {
            Ok(operand) => match aligned(operand, shape.rank(), axis, shape[axis]) {
                Some(at) => split.operand(*index, at),
                None => split,
            },
            Err(_) => split,
        })
    };
    Ok((0..shape.rank()).map(axis).collect())
}

/// The axis of `operand` that lies, aligned at the right, on `axis` of a result of `rank` and is as long.
pub(super) fn aligned(operand: &TensorType, rank: usize, axis: usize, size: Dim) -> Option<usize> {
    let at = (axis + operand.shape.rank()).checked_sub(rank)?;
    operand.shape[at].same(size).then_some(at)
}

/// Every axis of results shaped like the first operand, except those in `not`.
pub(super) fn off(call: &Typed<'_>, not: &[usize]) -> Result<Vec<SplitAxis>, TypeError> {
    let rank = call.tensor(0)?.shape.rank();
    let free = (0..rank).filter(|axis| !not.contains(axis));
    Ok(free.map(|axis| SplitAxis::along(call, axis).operand(0, axis)).collect())
}

/// Every axis of a call on (data, vectors along `vector`), whose first result is shaped like the data: a vector is
/// cut where its axis is.
pub(super) fn along_vectors(call: &Typed<'_>, vector: usize, not: &[usize]) -> Result<Vec<SplitAxis>, TypeError> {
    let size = call.tensor(0)?.shape.get(vector).copied().unwrap_or(Dim::Any);
    let cut = |split: SplitAxis| {
        if split.join != Join::Axis(vec![Some(vector); call.out.tensors().len()]) {
            return split;
        }
        (1..call.args.len()).fold(split, |split, index| match call.tensor(index).map(|t| &t.shape[..]) {
            Ok([n]) if n.same(size) => split.operand(index, 0),
            _ => split,
        })
    };
    Ok(off(call, not)?.into_iter().map(cut).collect())
}

/// The axis 0 of the result as axis 0 of the operands in `operands`, for images and their like that a call works on
/// one by one.
pub(super) fn batch(call: &Typed<'_>, operands: &[usize]) -> Vec<SplitAxis> {
    vec![operands.iter().fold(SplitAxis::along(call, 0), |split, index| split.operand(*index, 0))]
}

/// `list` with entry `at` replaced.
pub(super) fn with_entry(list: &[i64], at: usize, value: i64) -> Attr {
    let entries = list.iter().enumerate().map(|(i, n)| Attr::Int(if i == at { value } else { *n }));
    Attr::List(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_snap_to_the_grain() {
        let axis = |size, grain| SplitAxis { join: Join::Sum, size, grain, operands: vec![], attrs: vec![] };
        assert_eq!(axis(10, 1).cuts(&[0.5, 0.5]), [0, 5, 10]);
        assert_eq!(axis(10, 1).cuts(&[3.0, 1.0]), [0, 8, 10], "fractions of any sum");
        assert_eq!(axis(16, 8).cuts(&[0.3, 0.3, 0.4]), [0, 8, 8, 16], "a shard may be empty");
        assert_eq!(axis(10, 4).cuts(&[0.99, 0.01]), [0, 8, 10], "the last one takes what the grain leaves");
    }
}
