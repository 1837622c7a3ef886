//! The call that computes one shard of an operator: a range of one of its split axes.

use std::ops::Range;

use edgecut_graph::{Arg, Attrs, Dim, Graph, Operator, OperatorId, Origin, TensorType, Type};

use crate::{
    def::{Call, TypeError},
    registry::lookup,
    split::{Join, SplitAxis},
};

/// One shard of an operator, by number. An operator that is not split is its own shard 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    pub operator: OperatorId,
    pub index: u32,
}

/// A shard as a call of the same operator on slices of its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardCall {
    pub attrs: Attrs,
    /// For each operand (tuples flattened) the slice that the shard reads; `None` for the whole operand.
    pub operands: Vec<Option<Slice>>,
    /// Result types.
    pub types: Vec<TensorType>,
}

/// A range of one axis of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    pub axis: usize,
    pub begin: u64,
    pub end: u64,
}

/// Why an operator cannot be split as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    #[error("{op} cannot be split along axis {axis}: it has {axes} split axes")]
    NoAxis { op: String, axis: usize, axes: usize },
    #[error("{op} is split at {cuts:?}, expected ascending multiples of {grain} from 0 to {size}")]
    Cuts { op: String, cuts: Vec<u64>, grain: u64, size: u64 },
    #[error(
        "{op} is split at {cuts:?} into tiles {tiles:?}, expected as many tiles as shares, ascending and all different, that \
         contain the shares and begin and end at multiples of {grain}"
    )]
    Tiles { op: String, cuts: Vec<u64>, tiles: Vec<Range<u64>>, grain: u64 },
    #[error("shard {begin}..{end} of {op} reads no element of operand {operand}")]
    Empty { op: String, begin: u64, end: u64, operand: usize },
    #[error("shard {begin}..{end} of {op} has type {found}, expected {expected}")]
    Type { op: String, begin: u64, end: u64, found: String, expected: String },
    #[error(
        "{op} is split as the sum of {shards} shards of operand {operand}, which is not split into as many partial sums"
    )]
    Carried { op: String, shards: usize, operand: usize },
    #[error(transparent)]
    Operands(#[from] TypeError),
}

impl SplitAxis {
    /// The shard of `operator` that computes `range` of this axis, which must be one of its [`axes`](crate::passes::axes::axes).
    ///
    /// # Errors
    /// If the shard reads no element of some operand (its range lies in the padding), or the operator's type rule
    /// rejects the slices.
    pub fn shard(&self, graph: &Graph, operator: &Operator, range: &Range<u64>) -> Result<ShardCall, SplitError> {
        let (op, begin, end) = (operator.name.to_string(), range.start, range.end);
        let mut attrs = operator.attrs.clone();
        for (key, value) in &self.attrs {
            attrs.set(*key, value(range));
        }
        let mut slices = Vec::with_capacity(self.operands.len());
        let mut sliced = Vec::with_capacity(self.operands.len());
        for (index, (tensor, access)) in operator.operands().zip(&self.operands).enumerate() {
            let mut ty = graph.tensor(tensor).ty.clone();
            let slice = access.as_ref().map(|access| {
                let range = (access.map)(range);
                Slice { axis: access.axis, begin: range.start, end: range.end }
            });
            let slice =
                slice.filter(|s| ty.shape.get(s.axis).and_then(|d| d.get()) != Some(s.end - s.begin.min(s.end)));
            if let Some(slice) = &slice {
                let size = ty.shape.get(slice.axis).and_then(|d| d.get()).unwrap_or(0);
                if slice.begin >= slice.end || slice.end > size {
                    return Err(SplitError::Empty { op, begin, end, operand: index });
                }
                resize(&mut ty, slice.axis, slice.end - slice.begin);
            }
            slices.push(slice);
            sliced.push(ty);
        }
        let types = infer(graph, operator, &attrs, sliced, &slices)?;
        let whole = operator.outputs.iter().map(|t| &graph.tensor(*t).ty);
        for (index, (found, whole)) in types.iter().zip(whole).enumerate() {
            let mut expected = whole.clone();
            if let Join::Axis(axes) = &self.join
                && let Some(Some(axis)) = axes.get(index)
            {
                resize(&mut expected, *axis, end - begin);
            }
            let same = found.dtype == expected.dtype && found.shape.fixed() == expected.shape.fixed();
            if !same {
                let (found, expected) = (found.to_string(), expected.to_string());
                return Err(SplitError::Type { op, begin, end, found, expected });
            }
        }
        Ok(ShardCall { attrs, operands: slices, types })
    }
}

/// Sets the size of a dimension and keeps its integer type.
fn resize(ty: &mut TensorType, axis: usize, size: u64) {
    if let Some(dim) = ty.shape.get_mut(axis) {
        *dim = if matches!(dim, Dim::Wide(_)) { Dim::Wide(size) } else { Dim::Known(size) };
    }
}

/// The result types of `operator` with other attributes and operand types.
fn infer(
    graph: &Graph,
    operator: &Operator,
    attrs: &Attrs,
    operands: Vec<TensorType>,
    slices: &[Option<Slice>],
) -> Result<Vec<TensorType>, TypeError> {
    let unknown = || TypeError { op: operator.name.clone(), what: "is an unknown operator".into() };
    let def = lookup(&operator.name).ok_or_else(unknown)?;
    let mut operands = operands.into_iter().map(Type::Tensor);
    let (mut args, mut values, mut at) = (Vec::new(), Vec::new(), 0);
    for arg in &operator.args {
        match arg {
            Arg::Tensor(tensor) => {
                args.extend(operands.next());
                values.push(match &graph.tensor(*tensor).origin {
                    Origin::Constant(data) if slices.get(at).is_none_or(Option::is_none) => Some(data),
                    _ => None,
                });
            }
            Arg::Tuple(tensors) => {
                args.push(Type::Tuple(operands.by_ref().take(tensors.len()).collect()));
                values.push(None);
            }
        }
        at += arg.tensors().len();
    }
    let ty = (def.infer)(&Call { def, attrs, args: &args, values: &values })?;
    Ok(ty.tensors().into_iter().cloned().collect())
}
