//! Split axes that operator families share: elementwise, per-channel vectors, batches.

use edgecut_graph::{Attr, Dim, TensorType};

use crate::{
    def::{TypeError, Typed},
    split::axis::{Join, SplitAxis},
};

impl SplitAxis {
    /// A split along `axis` of every output. Shards need every operand whole until narrowed.
    pub(crate) fn along(call: &Typed<'_>, axis: usize) -> SplitAxis {
        let outputs = call.out.tensors();
        let size = outputs.first().and_then(|t| t.shape.get(axis)).and_then(|d| d.get()).unwrap_or(0);
        SplitAxis::new(Join::Axis(vec![Some(axis); outputs.len()]), size, operand_count(call))
    }

    /// A split along a reduction axis of length `size`: shards compute partial sums.
    pub(crate) fn summed(call: &Typed<'_>, size: Dim) -> SplitAxis {
        SplitAxis::new(Join::Sum, size.get().unwrap_or(0), operand_count(call))
    }
}

fn operand_count(call: &Typed<'_>) -> usize {
    call.args.iter().map(|arg| arg.tensors().len()).sum()
}

/// Every result axis of an elementwise call whose operands broadcast against each other.
pub(crate) fn elementwise(call: &Typed<'_>) -> Result<Vec<SplitAxis>, TypeError> {
    let operands: Vec<usize> = (0..call.args.len()).collect();
    elementwise_on(call, &operands)
}

/// As [`elementwise`], where only the operands numbered `operands` broadcast; shards need the others whole.
pub(crate) fn elementwise_on(call: &Typed<'_>, operands: &[usize]) -> Result<Vec<SplitAxis>, TypeError> {
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

/// The axis of `operand` that corresponds to `axis` (of length `size`) of a result of rank `rank` under right-aligned
/// broadcasting; `None` if it is absent or broadcast.
pub(crate) fn aligned(operand: &TensorType, rank: usize, axis: usize, size: Dim) -> Option<usize> {
    let at = (axis + operand.shape.rank()).checked_sub(rank)?;
    operand.shape[at].same(size).then_some(at)
}

/// Every axis except those in `not`, for a call whose results have the shape of the first operand.
pub(crate) fn off(call: &Typed<'_>, not: &[usize]) -> Result<Vec<SplitAxis>, TypeError> {
    let rank = call.tensor(0)?.shape.rank();
    let free = (0..rank).filter(|axis| !not.contains(axis));
    Ok(free.map(|axis| SplitAxis::along(call, axis).operand(0, axis)).collect())
}

/// As [`off`], for a call on data and vectors along the axis `vector` of the data: a split along that axis slices the
/// vectors too.
pub(crate) fn along_vectors(call: &Typed<'_>, vector: usize, not: &[usize]) -> Result<Vec<SplitAxis>, TypeError> {
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

/// The batch axis: axis 0 of the result and of the operands numbered `operands`.
pub(crate) fn batch(call: &Typed<'_>, operands: &[usize]) -> Vec<SplitAxis> {
    vec![operands.iter().fold(SplitAxis::along(call, 0), |split, index| split.operand(*index, 0))]
}

/// `list` with entry `at` replaced by `value`, as an attribute.
pub(crate) fn with_entry(list: &[i64], at: usize, value: i64) -> Attr {
    let entries = list.iter().enumerate().map(|(i, n)| Attr::Int(if i == at { value } else { *n }));
    Attr::List(entries.collect())
}
