//! The call that computes one shard of an operator: a range of one of its split axes.

use std::{collections::HashMap, ops::Range, sync::Arc};

use edgecut_graph::{
    Arg, Attrs, Dim, Graph, Operator, OperatorId, Origin, StateError, TensorData, TensorId, TensorType, Type,
};

use crate::{
    def::{Call, TypeError},
    registry::lookup,
    split::{DecompositionSplit, Join, PackedAxis, SplitAxis},
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
    /// For a composite operator, the decomposition of the shard.
    pub decomposition: Option<Arc<Graph>>,
}

impl ShardCall {
    /// Turns `operator`, a copy of the one that is split, into the shard, except for its arguments. Returns the result types.
    pub fn apply(self, operator: &mut Operator) -> Vec<TensorType> {
        operator.attrs = self.attrs;
        operator.decomposition = self.decomposition;
        self.types
    }
}

/// A range of one axis of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    pub axis: usize,
    /// If the axis is packed: the range is in interleaved order.
    pub packed: Option<PackedAxis>,
    pub begin: u64,
    pub end: u64,
}

impl Slice {
    /// The positions `range` of `axis`.
    pub fn new(axis: usize, range: Range<u64>) -> Slice {
        Slice { axis, packed: None, begin: range.start, end: range.end }
    }

    /// The slices that, one after the other, are this one of a tensor that has `size` positions along the axis.
    pub fn parts(&self, size: u64) -> Vec<Slice> {
        match &self.packed {
            None => vec![self.clone()],
            Some(packed) => {
                let ranges = packed.ranges(size, self.begin, self.end).into_iter();
                ranges.filter(|range| !range.is_empty()).map(|range| Slice::new(self.axis, range)).collect()
            }
        }
    }
}

/// Why an operator cannot be split as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    #[error("{op} cannot be split along axis {axis}: it has {axes} split axes")]
    NoAxis { op: String, axis: usize, axes: usize },
    #[error("{op} is split at {cuts:?}, expected ascending multiples of {grain} from 0 to {size}")]
    Cuts { op: String, cuts: Vec<u64>, grain: u64, size: u64 },
    #[error("{op} is replicated as {cuts:?}, expected 0, 1, …, n for n replicas, 2 to {most}")]
    Replicas { op: String, cuts: Vec<u64>, most: u64 },
    #[error(
        "{op} is split at {cuts:?} into tiles {tiles:?}, expected as many tiles as shares, ascending and all different, that \
         contain the shares and begin and end at multiples of {grain}"
    )]
    Tiles { op: String, cuts: Vec<u64>, tiles: Vec<Range<u64>>, grain: u64 },
    #[error(
        "{op} is split along a packed axis at {cuts:?}, expected multiples of {unit}, no tiles, and an axis with independent positions"
    )]
    Units { op: String, cuts: Vec<u64>, unit: u64 },
    #[error("shard {begin}..{end} of {op} reads no element of operand {operand}")]
    Empty { op: String, begin: u64, end: u64, operand: usize },
    #[error("shard {begin}..{end} of {op} has type {found}, expected {expected}")]
    Type { op: String, begin: u64, end: u64, found: String, expected: String },
    #[error(
        "{op} is split as the sum of {shards} shards of operand {operand}, which is not split into as many partial sums"
    )]
    Carried { op: String, shards: usize, operand: usize },
    #[error(transparent)]
    State(#[from] StateError),
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
            let slice = access
                .as_ref()
                .map(|access| Slice { packed: access.packed.clone(), ..Slice::new(access.axis, (access.map)(range)) });
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
        let decomposition = match &self.decomposition {
            Some(split) => Some(split.shard(&slices, range)?),
            None => None,
        };
        let types = match &decomposition {
            Some(inner) => inner.outputs.iter().map(|output| inner.tensor(*output).ty.clone()).collect(),
            None => infer(graph, operator, &attrs, sliced, &slices)?,
        };
        let whole = operator.outputs.iter().map(|t| &graph.tensor(*t).ty);
        for (index, (found, whole)) in types.iter().zip(whole).enumerate() {
            let mut expected = whole.clone();
            if let Join::Axis(axes) = &self.join
                && let Some(Some(axis)) = axes.get(index)
            {
                let size = expected.shape.get(*axis).and_then(|d| d.get()).unwrap_or(self.size);
                let part = self.output_range(size, range);
                resize(&mut expected, *axis, part.end - part.start);
            }
            let same = found.dtype == expected.dtype && found.shape.fixed() == expected.shape.fixed();
            if !same {
                let (found, expected) = (found.to_string(), expected.to_string());
                return Err(SplitError::Type { op, begin, end, found, expected });
            }
        }
        Ok(ShardCall { attrs, operands: slices, types, decomposition: decomposition.map(Arc::new) })
    }
}

impl SplitAxis {
    /// The shard that computes `range`, in interleaved order, of an axis that [supports](SplitAxis::supports_packed) `packed`.
    ///
    /// # Errors
    /// As of [`SplitAxis::shard`], and if the axis does not support it.
    pub(crate) fn shard_of_units(
        &self,
        graph: &Graph,
        operator: &Operator,
        range: &Range<u64>,
        packed: &PackedAxis,
    ) -> Result<ShardCall, SplitError> {
        if !self.supports_packed(graph, operator, packed) {
            let (op, cuts) = (operator.name.to_string(), vec![range.start, range.end]);
            return Err(SplitError::Units { op, cuts, unit: packed.unit() });
        }
        // Positions are independent: the call depends only on their number.
        let mut call = self.shard(graph, operator, &(0..range.end - range.start))?;
        for slice in call.operands.iter_mut().flatten() {
            *slice = Slice { packed: Some(packed.clone()), ..Slice::new(slice.axis, range.clone()) };
        }
        Ok(call)
    }
}

impl DecompositionSplit {
    /// The decomposition of the shard that computes `range` of the composite operator's axis from these slices of the operands.
    ///
    /// # Errors
    /// If an operator has no such shard, or two operators read different slices of a tensor.
    fn shard(&self, operands: &[Option<Slice>], range: &Range<u64>) -> Result<Graph, SplitError> {
        let whole = &*self.graph;
        let mut slices: HashMap<TensorId, Option<Slice>> = whole.inputs().zip(operands.iter().cloned()).collect();
        let mut calls = Vec::with_capacity(self.operators.len());
        for ((_, operator), split) in whole.operators().zip(&self.operators) {
            let inner = split.as_ref().map(|split| (split.map)(range));
            let call = match (split, &inner) {
                (Some(split), Some(inner)) => Some(split.axis.shard(whole, operator, inner)?),
                _ => None,
            };
            for (number, tensor) in operator.operands().enumerate() {
                let read = call.as_ref().and_then(|call| call.operands.get(number)?.clone());
                if slices.entry(tensor).or_insert_with(|| read.clone()) != &read {
                    let what = format!("shard {}..{} reads several slices of operand {number}", range.start, range.end);
                    return Err(TypeError { op: operator.name.clone(), what }.into());
                }
            }
            for (index, output) in operator.outputs.iter().enumerate() {
                let along = split.as_ref().and_then(|split| match &split.axis.join {
                    Join::Axis(axes) => axes.get(index).copied().flatten(),
                    Join::Sum | Join::Replicated => None,
                });
                let size = along.and_then(|axis| whole.tensor(*output).ty.shape.get(axis)?.get());
                let slice = along.zip(inner.clone()).map(|(axis, range)| Slice::new(axis, range));
                slices.insert(*output, slice.filter(|slice| size != Some(slice.end.saturating_sub(slice.begin))));
            }
            calls.push(call);
        }
        Ok(rebuilt(whole, &slices, calls))
    }
}

/// `whole` with these slices of its inputs and constants, and its operators replaced by `calls`, where `None` keeps one.
fn rebuilt(whole: &Graph, slices: &HashMap<TensorId, Option<Slice>>, calls: Vec<Option<ShardCall>>) -> Graph {
    let mut shard = Graph::new();
    let mut new: HashMap<TensorId, TensorId> = HashMap::with_capacity(whole.tensors().len());
    for (id, tensor) in whole.tensors().filter(|(id, _)| whole.producer(*id).is_none()) {
        let (mut ty, mut origin) = (tensor.ty.clone(), tensor.origin.clone());
        if let Some(Some(slice)) = slices.get(&id) {
            resize(&mut ty, slice.axis, slice.end - slice.begin);
            if let Origin::Constant(data) = &tensor.origin {
                origin = shortened(data, slice.axis, &ty).map_or(origin, Origin::Constant);
            }
        }
        new.insert(id, shard.add_tensor(tensor.name.clone(), ty, origin));
    }
    for ((id, operator), call) in whole.operators().zip(calls) {
        let copy = shard.copy_operator(whole, id, |tensor| new[&tensor]);
        let outputs = shard.operator(copy).outputs.clone();
        if let Some(call) = call {
            let types = call.apply(shard.operator_mut(copy));
            outputs.iter().zip(types).for_each(|(output, ty)| shard.tensor_mut(*output).ty = ty);
        }
        new.extend(operator.outputs.iter().copied().zip(outputs));
    }
    shard.outputs = whole.outputs.iter().map(|output| new[output]).collect();
    shard
}

/// The first elements of `data` along `axis`, as a tensor of type `ty`: a slice of any position, as `data` is uniform.
fn shortened(data: &TensorData, axis: usize, ty: &TensorType) -> Option<TensorData> {
    let shape = ty.shape.fixed()?.to_vec();
    let bytes = |shape: &[u64]| usize::try_from(shape.get(axis..)?.iter().product::<u64>() * data.dtype().size()).ok();
    let (whole, kept) = (bytes(data.shape())?.max(1), bytes(&shape)?);
    let rows = data.bytes().chunks(whole).filter_map(|row| row.get(..kept));
    TensorData::new(data.dtype(), shape, rows.flatten().copied().collect::<Vec<u8>>()).ok()
}

/// Sets the size of a dimension and keeps its integer type.
pub(crate) fn resize(ty: &mut TensorType, axis: usize, size: u64) {
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
