//! Rewrites a graph so that some tensors exist as shards: slices, concatenations and sums are inserted where needed.
//!
//! Shared by sharding and tiling, which differ in the order in which they write shards.

use std::{collections::HashMap, ops::Range};

use smol_str::{SmolStr, format_smolstr};

use edgecut_graph::{Arg, Attr, Attrs, Graph, Operator, OperatorId, Origin, StatePair, TensorId, TensorType, Type};

use crate::{
    def::{Call, TypeError},
    passes::shard::{Shard, Slice, SplitError, resize},
    registry::lookup,
    split::{PackedAxis, ShardedAxis},
};

/// A graph some of whose operators are split into shards.
#[derive(Debug, Clone, PartialEq)]
pub struct Sharded {
    pub graph: Graph,
    /// By operator of `graph`: its role.
    pub roles: Vec<Role>,
    /// The states of `graph`.
    pub states: Vec<StatePair>,
}

/// The role of an operator in a rewritten graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Computes the shard.
    Compute(Shard),
    /// Prepares operands of the shard: slices of weights, concatenations and sums of other shards' results.
    Prepare(Shard),
    /// Slices a result of the shard for other shards.
    Serve(Shard),
    /// Slices an input of the model.
    Input,
    /// Combines results of shards to a result of the model.
    Output,
}

/// How a tensor of the original graph is represented by shards.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ShardLayout {
    /// All of it, in each shard.
    Whole,
    /// Ranges of an axis in ascending order that cover it; neighbours may overlap.
    Concat { side: ShardedAxis, ranges: Vec<Range<u64>> },
    /// Partial sums.
    Partial,
}

/// A tensor of the rewritten graph that represents a tensor of the original graph or a shard of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ShardTensor {
    pub tensor: TensorId,
    /// The shard that produces it; `None` for inputs, parameters and constants.
    pub producer: Option<Shard>,
}

/// A rewritten graph under construction, with the representation of every tensor of the original graph.
pub(crate) struct GraphRewriter<'a> {
    pub original: &'a Graph,
    pub out: Sharded,
    /// By tensor of the original graph: its shards, and their layout.
    pub shards: Vec<Vec<ShardTensor>>,
    pub layouts: Vec<ShardLayout>,
    /// The shard that is written.
    pub own: Option<Shard>,
    /// By operator that is split: where its shards run ([`homes`](crate::passes::shard_graph::Sharding::homes)).
    pub homes: HashMap<OperatorId, Vec<u32>>,
    /// Slices with several readers, by tensor and range.
    slices: HashMap<(TensorId, Slice), TensorId>,
    /// By operator of `original`: whether it is copied where its results are read; empty if none is.
    pub copied: Vec<bool>,
    /// What was written for the readers of their results.
    pub copies: HashMap<ConstantRead, TensorId>,
}

/// What is read of a tensor of the original graph that depends on parameters alone, and by what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConstantRead {
    pub tensor: TensorId,
    pub need: Option<Slice>,
    pub role: Role,
}

impl GraphRewriter<'_> {
    /// Copies the inputs, parameters and constants of `original`. Inputs that have one of `layouts` become an
    /// input for each shard.
    pub fn new<'a>(original: &'a Graph, layouts: &HashMap<TensorId, ShardLayout>) -> GraphRewriter<'a> {
        let mut rewriter = GraphRewriter {
            original,
            out: Sharded { graph: Graph::new(), roles: Vec::new(), states: Vec::new() },
            shards: vec![Vec::new(); original.tensors().len()],
            layouts: vec![ShardLayout::Whole; original.tensors().len()],
            own: None,
            homes: HashMap::new(),
            slices: HashMap::new(),
            copied: Vec::new(),
            copies: HashMap::new(),
        };
        for (id, tensor) in original.tensors() {
            if let Some(ShardLayout::Concat { side, ranges }) = layouts.get(&id) {
                rewriter.split_input(id, side.axis, ranges);
            } else if !matches!(tensor.origin, Origin::Operator { .. }) {
                let new = rewriter.out.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone());
                rewriter.shards[id.0 as usize] = vec![ShardTensor { tensor: new, producer: None }];
            }
        }
        rewriter
    }

    /// Adds an input for each of `ranges` of `axis` of the input `id`.
    fn split_input(&mut self, id: TensorId, axis: usize, ranges: &[Range<u64>]) {
        let original = self.original.tensor(id);
        for range in ranges {
            let slice = Slice::new(axis, range.clone());
            let mut ty = original.ty.clone();
            resize(&mut ty, axis, slice.end - slice.begin);
            let new = self.out.graph.add_tensor(sliced(&original.name, &slice), ty, Origin::Input);
            self.shards[id.0 as usize].push(ShardTensor { tensor: new, producer: None });
        }
        self.layouts[id.0 as usize] = ShardLayout::Concat { side: axis.into(), ranges: ranges.to_vec() };
    }

    /// Copies an operator unsplit.
    pub fn keep(&mut self, id: OperatorId, operator: &Operator) -> Result<(), SplitError> {
        self.copy(operator, Shard { operator: id, index: 0 })
    }

    /// Copies an operator unsplit, as `shard`.
    pub fn copy(&mut self, operator: &Operator, shard: Shard) -> Result<(), SplitError> {
        let mut copy = operator.clone();
        let needs = vec![None; operator.operands().count()];
        copy.args = self.operands(operator, &needs, Role::Prepare(shard))?;
        let types: Vec<TensorType> = operator.outputs.iter().map(|t| self.original.tensor(*t).ty.clone()).collect();
        let outputs = self.add(copy, &types, Role::Compute(shard));
        for (old, new) in operator.outputs.iter().zip(outputs) {
            let name = &self.original.tensor(*old).name;
            self.out.graph.tensor_mut(new).name = match shard.index {
                0 => name.clone(),
                replica => format_smolstr!("{name}[replica {}]", replica + 1),
            };
            self.shards[old.0 as usize].push(ShardTensor { tensor: new, producer: Some(shard) });
        }
        Ok(())
    }

    /// The arguments of `operator`, each operand sliced as `needs` specifies.
    pub fn operands(
        &mut self,
        operator: &Operator,
        needs: &[Option<Slice>],
        role: Role,
    ) -> Result<Vec<Arg>, SplitError> {
        map_args(operator, needs, |tensor, need| self.read(tensor, need, role))
    }

    /// A tensor of the original graph, or a slice of it, as one tensor of the rewritten graph. What is made for that has the
    /// original tensor's name, with the range of a slice.
    pub fn read(&mut self, tensor: TensorId, need: Option<&Slice>, role: Role) -> Result<TensorId, SplitError> {
        if self.is_copied(tensor) {
            return self.copy_constant(tensor, need, role);
        }
        let is_alike = |slice: &Slice| match &self.layouts[tensor.0 as usize] {
            ShardLayout::Whole => true,
            ShardLayout::Concat { side, .. } => (side.axis, &side.packed) == (slice.axis, &slice.packed),
            ShardLayout::Partial => false,
        };
        if let Some(slice) = need.filter(|slice| slice.packed.is_some() && !is_alike(slice)) {
            return self.read_parts(tensor, slice, role);
        }
        let shards = self.shards[tensor.0 as usize].clone();
        match self.layouts[tensor.0 as usize].clone() {
            ShardLayout::Whole => {
                let nearest = self.nearest(&shards).and_then(|number| shards.get(number)).or(shards.first());
                self.slice(*nearest.ok_or_else(|| undefined(tensor))?, need, role)
            }
            ShardLayout::Partial => {
                let mut parts = Vec::with_capacity(shards.len());
                for shard in shards {
                    parts.push(self.slice(shard, need, role)?);
                }
                let (name, last) = (self.name_of(tensor, need), parts.len().saturating_sub(1));
                let mut parts = parts.into_iter();
                let mut sum = parts.next().ok_or_else(|| undefined(tensor))?;
                for (count, part) in (1..).zip(parts) {
                    let name = if count == last { name.clone() } else { format_smolstr!("{name}[+{count}]") };
                    let args = vec![Arg::Tensor(sum), Arg::Tensor(part)];
                    sum = self.call("add", Attrs::new(), args, &name, role)?;
                }
                Ok(sum)
            }
            ShardLayout::Concat { side, ranges } => {
                let name = self.name_of(tensor, need);
                let is_same_layout = |slice: &&Slice| (slice.axis, &slice.packed) == (side.axis, &side.packed);
                match &side.packed {
                    Some(packed) if need.filter(is_same_layout).is_none() => {
                        let whole = self.original.tensor(tensor).name.clone();
                        let tensor = self.deinterleaved(&shards, (side.axis, packed), &whole, role)?;
                        self.slice(ShardTensor { tensor, producer: None }, need, role)
                    }
                    _ => self.concatenate(&shards, &side, &ranges, need, &name, role),
                }
            }
        }
    }

    /// Index of the shard to read where any of `shards` would do: one on the device of the shard being written, preferably of the
    /// same index. Without one on that device, the same index.
    fn nearest(&self, shards: &[ShardTensor]) -> Option<usize> {
        let own = self.own?;
        let home = |shard: Shard| self.homes.get(&shard.operator)?.get(shard.index as usize);
        let is_near = |shard: &ShardTensor| shard.producer.and_then(home) == home(own);
        let number = own.index as usize;
        let own_index = shards.get(number).filter(|shard| is_near(shard)).map(|_| number);
        own_index.or_else(|| shards.iter().position(is_near)).or(Some(number))
    }

    /// A slice of a packed axis, of a tensor that exists as shards of another layout.
    fn read_parts(&mut self, tensor: TensorId, need: &Slice, role: Role) -> Result<TensorId, SplitError> {
        let name = self.name_of(tensor, Some(need));
        let size = self.original.tensor(tensor).ty.shape.get(need.axis).and_then(|dim| dim.get());
        let mut parts = Vec::new();
        for part in need.parts(size.unwrap_or(0)) {
            parts.push(self.read(tensor, Some(&part), role)?);
        }
        self.joined(parts, need.axis, &name, role)
    }

    /// The concatenation of `parts` along `axis`, as `name`.
    fn joined(&mut self, parts: Vec<TensorId>, axis: usize, name: &str, role: Role) -> Result<TensorId, SplitError> {
        match parts[..] {
            [only] => Ok(only),
            _ => {
                let attrs = [("axis".into(), Attr::Int(axis as i64))].into_iter().collect();
                self.call("concatenate", attrs, vec![Arg::Tuple(parts)], name, role)
            }
        }
    }

    pub fn name_of(&self, tensor: TensorId, need: Option<&Slice>) -> SmolStr {
        let name = &self.original.tensor(tensor).name;
        need.map_or_else(|| name.clone(), |slice| sliced(name, slice))
    }

    /// Concatenates shards of a packed axis tensor by tensor, which undoes the interleaving. The result is called `name`.
    fn deinterleaved(
        &mut self,
        shards: &[ShardTensor],
        (axis, packed): (usize, &PackedAxis),
        name: &str,
        role: Role,
    ) -> Result<TensorId, SplitError> {
        let mut of_shards = Vec::with_capacity(shards.len());
        for shard in shards {
            let size = self.out.graph.tensor(shard.tensor).ty.shape.get(axis).and_then(|dim| dim.get()).unwrap_or(0);
            of_shards.push(packed.ranges(size, 0, size));
        }
        let mut parts = Vec::new();
        for part in 0..of_shards.first().map_or(0, Vec::len) {
            for (shard, ranges) in shards.iter().zip(&of_shards) {
                if let Some(range) = ranges.get(part).filter(|range| !range.is_empty()) {
                    parts.push(self.slice(*shard, Some(&Slice::new(axis, range.clone())), role)?);
                }
            }
        }
        self.joined(parts, axis, name, role)
    }

    /// The concatenation along `side` of `shards`, which have these `ranges` of it, restricted to `need`, as `name`.
    fn concatenate(
        &mut self,
        shards: &[ShardTensor],
        side: &ShardedAxis,
        ranges: &[Range<u64>],
        need: Option<&Slice>,
        name: &str,
        role: Role,
    ) -> Result<TensorId, SplitError> {
        let axis = side.axis;
        let (from, until) = match need {
            Some(slice) if slice.axis == axis => (slice.begin, slice.end),
            _ => (0, ranges.last().map_or(0, |range| range.end)),
        };
        let mut parts = Vec::new();
        for (index, piece) in cover(ranges, self.nearest(shards), &(from..until)) {
            let Some((shard, range)) = shards.get(index).zip(ranges.get(index)) else { continue };
            let along = Slice::new(axis, piece.start - range.start..piece.end - range.start);
            let along = Slice { packed: side.packed.clone(), ..along };
            let part = self.slice(*shard, Some(&along), role)?;
            let across = need.filter(|slice| slice.axis != axis);
            let part = ShardTensor { tensor: part, producer: shard.producer };
            parts.push(match across {
                Some(_) => ShardTensor { tensor: self.slice(part, across, role)?, ..part },
                None => part,
            });
        }
        match (&side.packed, &parts[..]) {
            (Some(packed), [_, _, ..]) => self.deinterleaved(&parts, (axis, packed), name, role),
            _ => self.joined(parts.into_iter().map(|part| part.tensor).collect(), axis, name, role),
        }
    }

    /// A slice of one shard's tensor. Slices of results are attributed to the shard that produces them and shared by
    /// their readers; slices of weights to the reader.
    pub fn slice(&mut self, shard: ShardTensor, need: Option<&Slice>, reader: Role) -> Result<TensorId, SplitError> {
        let Some(need) = need else { return Ok(shard.tensor) };
        let tensor = self.out.graph.tensor(shard.tensor);
        if tensor.ty.shape.get(need.axis).and_then(|d| d.get()) == Some(need.end - need.begin) {
            return Ok(shard.tensor);
        }
        let role = match (&tensor.origin, shard.producer) {
            (Origin::Input, _) => Role::Input,
            (_, Some(producer)) => Role::Serve(producer),
            _ => reader,
        };
        let key = (shard.tensor, need.clone());
        let shared = role != reader;
        if let Some(slice) = self.slices.get(&key).filter(|_| shared) {
            return Ok(*slice);
        }
        let size = tensor.ty.shape.get(need.axis).and_then(|dim| dim.get()).unwrap_or(0);
        let name = sliced(&tensor.name, need);
        let mut parts = Vec::new();
        for part in need.parts(size) {
            parts.push(self.strided(shard.tensor, &part, role)?);
        }
        let slice = self.joined(parts, need.axis, &name, role)?;
        if shared {
            self.slices.insert(key, slice);
        }
        Ok(slice)
    }

    /// Adds a slice of a tensor.
    fn strided(&mut self, tensor: TensorId, slice: &Slice, role: Role) -> Result<TensorId, SplitError> {
        let list = |n: u64| Attr::List([Attr::Int(n as i64)].into());
        let attrs: Attrs = [
            ("begin".into(), list(slice.begin)),
            ("end".into(), list(slice.end)),
            ("strides".into(), list(1)),
            ("slice_mode".into(), Attr::Str("end".into())),
            ("axes".into(), list(slice.axis as u64)),
        ]
        .into_iter()
        .collect();
        let name = sliced(&self.out.graph.tensor(tensor).name, slice);
        self.call("strided_slice", attrs, vec![Arg::Tensor(tensor)], &name, role)
    }

    /// Adds a call of the operator `op` with a single result, called `name`.
    fn call(&mut self, op: &str, attrs: Attrs, args: Vec<Arg>, name: &str, role: Role) -> Result<TensorId, SplitError> {
        let operator = Operator::new(op, args).with_attrs(attrs);
        let unknown = || TypeError { op: op.into(), what: "is an unknown operator".into() };
        let def = lookup(op).ok_or_else(unknown)?;
        let args = self.out.graph.arg_types(&operator);
        let ty = (def.infer)(&Call { def, attrs: &operator.attrs, args: &args, values: &[] })?;
        let Type::Tensor(ty) = ty else { return Err(unknown().into()) };
        let result = self.add(operator, &[ty], role).first().copied().ok_or_else(unknown)?;
        self.out.graph.tensor_mut(result).name = name.into();
        Ok(result)
    }

    /// Appends an operator and returns its outputs.
    pub fn add(&mut self, operator: Operator, types: &[TensorType], role: Role) -> Vec<TensorId> {
        let id = self.out.graph.add_operator(operator, types);
        self.out.roles.push(role);
        self.out.graph.operator(id).outputs.clone()
    }
}

/// Pieces of `ranges` that together are `wanted`, each with the number of its range: all of one range that contains it, else
/// as much as possible of range `own` and the rest from the others in ascending order.
fn cover(ranges: &[Range<u64>], own: Option<usize>, wanted: &Range<u64>) -> Vec<(usize, Range<u64>)> {
    let contains = |range: &Range<u64>| range.start <= wanted.start && wanted.end <= range.end;
    let own = own.and_then(|own| Some((own, ranges.get(own)?)));
    if let Some((index, _)) = own.filter(|(_, range)| contains(range)) {
        return vec![(index, wanted.clone())];
    }
    if let Some(index) = ranges.iter().position(contains) {
        return vec![(index, wanted.clone())];
    }
    let mut from = wanted.start;
    let mut pieces = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        let limit = match own {
            Some((own, range)) if index < own => range.start.max(from),
            _ => wanted.end,
        };
        let end = wanted.end.min(range.end).min(limit);
        if range.start <= from && from < end {
            pieces.push((index, from..end));
            from = end;
        }
    }
    pieces
}

/// The name of a slice of the tensor `name`, which no other slice of it has.
pub(crate) fn sliced(name: &str, slice: &Slice) -> SmolStr {
    match &slice.packed {
        None => format_smolstr!("{name}[{}:{}..{}]", slice.axis, slice.begin, slice.end),
        Some(packed) => format_smolstr!("{name}[{}:{}..{} packed {packed}]", slice.axis, slice.begin, slice.end),
    }
}

/// The arguments of `operator` with every operand replaced by `read` of it and its entry in `needs`.
pub(crate) fn map_args(
    operator: &Operator,
    needs: &[Option<Slice>],
    mut read: impl FnMut(TensorId, Option<&Slice>) -> Result<TensorId, SplitError>,
) -> Result<Vec<Arg>, SplitError> {
    let mut needs = needs.iter();
    let mut args = Vec::with_capacity(operator.args.len());
    for arg in &operator.args {
        let mut one = |tensor: &TensorId| read(*tensor, needs.next().and_then(Option::as_ref));
        args.push(match arg {
            Arg::Tensor(tensor) => Arg::Tensor(one(tensor)?),
            Arg::Tuple(tensors) => Arg::Tuple(tensors.iter().map(&mut one).collect::<Result<_, _>>()?),
        });
    }
    Ok(args)
}

pub(crate) fn undefined(tensor: TensorId) -> SplitError {
    TypeError { op: "split".into(), what: format!("tensor {} is used before its definition", tensor.0) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_covered_once_and_by_what_is_near() {
        let tiles = [0..12, 8..22, 18..30];
        for (own, wanted, expected) in [
            (None, 2..10, vec![(0, 2..10)]),
            (Some(1), 9..11, vec![(1, 9..11)]),
            (None, 9..11, vec![(0, 9..11)]),
            (Some(1), 6..24, vec![(0, 6..8), (1, 8..22), (2, 22..24)]),
            (Some(2), 10..30, vec![(0, 10..12), (1, 12..18), (2, 18..30)]),
            (None, 0..30, vec![(0, 0..12), (1, 12..22), (2, 22..30)]),
            (Some(7), 11..23, vec![(0, 11..12), (1, 12..22), (2, 22..23)]),
        ] {
            assert_eq!(cover(&tiles, own, &wanted), expected, "{own:?} {wanted:?}");
        }
    }
}
