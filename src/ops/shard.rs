//! One shard of an operator: the call that computes a range of one of its split axes.

use std::ops::Range;

use super::{
    Call, TypeError, Typed, lookup,
    split::{Join, SplitAxis},
};
use crate::graph::{Arg, Attrs, Dim, Graph, Operator, Origin, TensorType, Type};

/// A part of an operator's work as a call of the same operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Shard {
    pub attrs: Attrs,
    /// For each operand, tuples flattened, what is needed of it; `None` if that is all of it.
    pub operands: Vec<Option<Slice>>,
    /// The types of its results.
    pub types: Vec<TensorType>,
}

/// A range of one axis of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    pub axis: usize,
    pub begin: u64,
    pub end: u64,
}

/// Why an operator cannot be split as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    #[error("{op} cannot be split along axis number {axis}: it has {axes}")]
    NoAxis { op: String, axis: usize, axes: usize },
    #[error("{op} is cut at {cuts:?}, expected ascending multiples of {grain} from 0 to {size}")]
    Cuts { op: String, cuts: Vec<u64>, grain: u64, size: u64 },
    #[error("a shard {begin}..{end} of {op} needs nothing of operand {operand}")]
    Empty { op: String, begin: u64, end: u64, operand: usize },
    #[error("a shard {begin}..{end} of {op} would be {found}, expected {expected}")]
    Type { op: String, begin: u64, end: u64, found: String, expected: String },
    #[error(transparent)]
    Operands(#[from] TypeError),
}

/// The ways in which `operator` can be split into at least two shards. None for an operator that is not known,
/// declares none, or whose sizes are not known.
pub fn axes(graph: &Graph, operator: &Operator) -> Vec<SplitAxis> {
    let Some((def, split)) = lookup(&operator.name).and_then(|def| Some((def, def.split?))) else { return Vec::new() };
    let args = graph.arg_types(operator);
    let out = graph.result_type(operator);
    let known = |ty: &TensorType| ty.shape.fixed().is_some();
    if !args.iter().flat_map(|ty| ty.tensors()).chain(out.tensors()).all(known) {
        return Vec::new();
    }
    let call = Call { def, attrs: &operator.attrs, args: &args, values: &[] };
    let mut axes = split(&Typed { call, out: &out }).unwrap_or_default();
    axes.retain(|axis| axis.size > axis.grain);
    axes
}

impl SplitAxis {
    /// The shard of `operator` that computes `range` of this axis, which must be one of its [`axes`].
    ///
    /// # Errors
    /// If the range needs nothing of some operand (it lies in the padding alone), or the operator does not accept
    /// the slices.
    pub fn shard(&self, graph: &Graph, operator: &Operator, range: &Range<u64>) -> Result<Shard, SplitError> {
        let (op, begin, end) = (operator.name.to_string(), range.start, range.end);
        let mut attrs = operator.attrs.clone();
        for (key, of) in &self.attrs {
            attrs.set(*key, of(range));
        }
        let mut slices = Vec::with_capacity(self.operands.len());
        let mut sliced = Vec::with_capacity(self.operands.len());
        for (index, (tensor, reach)) in operator.operands().zip(&self.operands).enumerate() {
            let mut ty = graph.tensor(tensor).ty.clone();
            let slice = reach.as_ref().map(|reach| {
                let range = (reach.of)(range);
                Slice { axis: reach.axis, begin: range.start, end: range.end }
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
        Ok(Shard { attrs, operands: slices, types })
    }
}

/// Sets a dimension, which stays of its kind.
fn resize(ty: &mut TensorType, axis: usize, size: u64) {
    if let Some(dim) = ty.shape.get_mut(axis) {
        *dim = if matches!(dim, Dim::Wide(_)) { Dim::Wide(size) } else { Dim::Known(size) };
    }
}

/// The result types of `operator` with other attributes, on operands of other types.
fn infer(
    graph: &Graph,
    operator: &Operator,
    attrs: &Attrs,
    operands: Vec<TensorType>,
    slices: &[Option<Slice>],
) -> Result<Vec<TensorType>, TypeError> {
    let unknown = || TypeError { op: operator.name.clone(), what: "is not known".into() };
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
