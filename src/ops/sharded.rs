//! A graph with some operators split: every shard an operator of its own, with slices and joins between them.
//!
//! The result is an ordinary graph that computes the same, so that everything that works on graphs (engines, agents,
//! the planner's tables) works on split ones. A shard that needs exactly what a shard before it made reads that; one
//! that needs a little more (the halo of a window) gets the rest as a slice of the neighbour's result.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use super::{
    Call, TypeError, lookup,
    shard::{Slice, SplitError, axes},
    split::Join,
};
use crate::graph::{Arg, Attr, Attrs, Graph, Operator, OperatorId, Origin, TensorId, TensorType, Type};

/// How one operator is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    /// Number of one of the operator's [`axes`].
    pub axis: usize,
    /// Where: ascending, from 0 to the axis' size, one more than there are shards.
    pub cuts: Vec<u64>,
}

/// A graph with operators split.
#[derive(Debug, Clone, PartialEq)]
pub struct Sharded {
    pub graph: Graph,
    /// For each operator of `graph` what it is.
    pub roles: Vec<Role>,
}

/// What an operator of a split graph is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It is operator `of` of the whole graph, or shard number `shard` of it.
    Compute { of: OperatorId, shard: u32 },
    /// It makes what that needs: slices of weights, joins of what several shards made.
    Prepare { of: OperatorId, shard: u32 },
    /// It slices what operator `of`, or its shard, made, for somebody else.
    Serve { of: OperatorId, shard: u32 },
    /// It slices an input of the model.
    Input,
    /// It joins what shards made to a result of the model.
    Output,
}

/// Splits the operators in `divisions`; all others stay whole.
///
/// # Errors
/// If an operator cannot be split as its division says.
pub fn sharded(graph: &Graph, divisions: &BTreeMap<OperatorId, Division>) -> Result<Sharded, SplitError> {
    if divisions.is_empty() {
        let roles = graph.operators().map(|(of, _)| Role::Compute { of, shard: 0 }).collect();
        return Ok(Sharded { graph: graph.clone(), roles });
    }
    let mut made = Making::of(graph);
    for (id, operator) in graph.operators() {
        match divisions.get(&id) {
            Some(division) => made.split(id, operator, division)?,
            None => made.keep(id, operator)?,
        }
    }
    for output in &graph.outputs {
        let new = made.needed(*output, None, Role::Output)?;
        made.out.graph.outputs.push(new);
    }
    Ok(made.out)
}

/// How a tensor of the whole graph lies in pieces.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Layout {
    Whole,
    /// The ranges ascend and leave nothing out; neighbours may overlap.
    Side {
        axis: usize,
        ranges: Vec<Range<u64>>,
    },
    Summands,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Piece {
    pub tensor: TensorId,
    /// The shard that makes it; `None` for what comes from outside.
    pub by: Option<(OperatorId, u32)>,
}

/// A graph that is being written, and where the tensors of the whole are in it.
pub(super) struct Making<'a> {
    pub whole: &'a Graph,
    pub out: Sharded,
    /// By tensor of the whole: its pieces, and how they lie.
    pub at: Vec<Vec<Piece>>,
    pub layouts: Vec<Layout>,
    /// Slices that were made, by what of.
    slices: HashMap<(TensorId, Slice), TensorId>,
}

impl Making<'_> {
    /// Nothing but what comes from outside.
    pub fn of(whole: &Graph) -> Making<'_> {
        let mut made = Making {
            whole,
            out: Sharded { graph: Graph::new(), roles: Vec::new() },
            at: vec![Vec::new(); whole.tensors().len()],
            layouts: vec![Layout::Whole; whole.tensors().len()],
            slices: HashMap::new(),
        };
        for (id, tensor) in whole.tensors() {
            if !matches!(tensor.origin, Origin::Operator { .. }) {
                let new = made.out.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone());
                made.at[id.0 as usize] = vec![Piece { tensor: new, by: None }];
            }
        }
        made
    }

    pub fn keep(&mut self, id: OperatorId, operator: &Operator) -> Result<(), SplitError> {
        let role = Role::Compute { of: id, shard: 0 };
        let mut copy = operator.clone();
        let needs = vec![None; operator.operands().count()];
        copy.args = self.operands(operator, &needs, Role::Prepare { of: id, shard: 0 })?;
        let types: Vec<TensorType> = operator.outputs.iter().map(|t| self.whole.tensor(*t).ty.clone()).collect();
        let outputs = self.add(copy, &types, role);
        for (old, new) in operator.outputs.iter().zip(outputs) {
            self.out.graph.tensor_mut(new).name = self.whole.tensor(*old).name.clone();
            self.at[old.0 as usize] = vec![Piece { tensor: new, by: Some((id, 0)) }];
        }
        Ok(())
    }

    fn split(&mut self, id: OperatorId, operator: &Operator, division: &Division) -> Result<(), SplitError> {
        let op = operator.name.to_string();
        let mut axes = axes(self.whole, operator);
        if division.axis >= axes.len() {
            return Err(SplitError::NoAxis { op, axis: division.axis, axes: axes.len() });
        }
        let axis = axes.swap_remove(division.axis);
        let cuts = &division.cuts;
        let ascending = cuts.windows(2).all(|w| w[0] < w[1]);
        let ends = cuts.first() == Some(&0) && cuts.last() == Some(&axis.size);
        let on_grain = cuts.iter().rev().skip(1).all(|cut| cut % axis.grain == 0);
        if !(ascending && ends && on_grain) {
            return Err(SplitError::Cuts { op, cuts: cuts.clone(), grain: axis.grain, size: axis.size });
        }
        let ranges: Vec<Range<u64>> = cuts.windows(2).map(|w| w[0]..w[1]).collect();
        for (number, range) in (0u32..).zip(&ranges) {
            let role = Role::Compute { of: id, shard: number };
            let shard = axis.shard(self.whole, operator, range)?;
            let mut copy = operator.clone();
            copy.args = self.operands(operator, &shard.operands, Role::Prepare { of: id, shard: number })?;
            copy.attrs = shard.attrs;
            let outputs = self.add(copy, &shard.types, role);
            for (old, new) in operator.outputs.iter().zip(outputs) {
                let name = format!("{}[{}..{}]", self.whole.tensor(*old).name, range.start, range.end);
                self.out.graph.tensor_mut(new).name = name.into();
                self.at[old.0 as usize].push(Piece { tensor: new, by: Some((id, number)) });
            }
        }
        for (index, output) in operator.outputs.iter().enumerate() {
            let layout = match &axis.join {
                Join::Sum => Layout::Summands,
                Join::Axis(axes) => match axes.get(index).copied().flatten() {
                    Some(axis) => Layout::Side { axis, ranges: ranges.clone() },
                    None => Layout::Whole,
                },
            };
            if layout == Layout::Whole {
                self.at[output.0 as usize].truncate(1);
            }
            self.layouts[output.0 as usize] = layout;
        }
        Ok(())
    }

    /// The arguments of `operator`, with what `needs` says of each operand.
    fn operands(&mut self, operator: &Operator, needs: &[Option<Slice>], role: Role) -> Result<Vec<Arg>, SplitError> {
        let mut needs = needs.iter();
        let mut args = Vec::with_capacity(operator.args.len());
        for arg in &operator.args {
            let mut one = |tensor: &TensorId| self.needed(*tensor, needs.next().and_then(Option::as_ref), role);
            args.push(match arg {
                Arg::Tensor(tensor) => Arg::Tensor(one(tensor)?),
                Arg::Tuple(tensors) => Arg::Tuple(tensors.iter().map(&mut one).collect::<Result<_, _>>()?),
            });
        }
        Ok(args)
    }

    /// A tensor of the whole graph, or a slice of it, as one tensor of the new graph.
    pub fn needed(&mut self, tensor: TensorId, need: Option<&Slice>, role: Role) -> Result<TensorId, SplitError> {
        let pieces = self.at[tensor.0 as usize].clone();
        match self.layouts[tensor.0 as usize].clone() {
            Layout::Whole => match pieces.first() {
                Some(piece) => self.slice(*piece, need, role),
                None => Err(lost(tensor)),
            },
            Layout::Summands => {
                let mut parts = Vec::with_capacity(pieces.len());
                for piece in pieces {
                    parts.push(self.slice(piece, need, role)?);
                }
                let mut parts = parts.into_iter();
                let mut sum = parts.next().ok_or_else(|| lost(tensor))?;
                for part in parts {
                    let args = vec![Arg::Tensor(sum), Arg::Tensor(part)];
                    sum = self.call("add", Attrs::new(), args, role)?;
                }
                Ok(sum)
            }
            Layout::Side { axis, ranges } => {
                let (mut from, until) = match need {
                    Some(slice) if slice.axis == axis => (slice.begin, slice.end),
                    _ => (0, ranges.last().map_or(0, |range| range.end)),
                };
                let along =
                    |range: &Range<u64>, begin, end| Slice { axis, begin: begin - range.start, end: end - range.start };
                let mut parts = Vec::new();
                // One piece that has all of it, or of each what the pieces before it lack.
                let one = ranges.iter().position(|range| range.start <= from && until <= range.end);
                for (piece, range) in pieces.iter().zip(&ranges).skip(one.unwrap_or(0)) {
                    let end = until.min(range.end);
                    if from < end {
                        let part = self.slice(*piece, Some(&along(range, from, end)), role)?;
                        let across = need.filter(|slice| slice.axis != axis);
                        parts.push(match across {
                            Some(_) => self.slice(Piece { tensor: part, by: piece.by }, across, role)?,
                            None => part,
                        });
                        from = end;
                    }
                }
                match parts[..] {
                    [only] => Ok(only),
                    _ => {
                        let attrs = [("axis".into(), Attr::Int(axis as i64))].into_iter().collect();
                        self.call("concatenate", attrs, vec![Arg::Tuple(parts)], role)
                    }
                }
            }
        }
    }

    /// A slice of one piece: made where the piece is made, and of weights where they are used.
    pub fn slice(&mut self, piece: Piece, need: Option<&Slice>, reader: Role) -> Result<TensorId, SplitError> {
        let Some(need) = need else { return Ok(piece.tensor) };
        let tensor = self.out.graph.tensor(piece.tensor);
        if tensor.ty.shape.get(need.axis).and_then(|d| d.get()) == Some(need.end - need.begin) {
            return Ok(piece.tensor);
        }
        let role = match (&tensor.origin, piece.by) {
            (Origin::Input, _) => Role::Input,
            (_, Some((of, shard))) => Role::Serve { of, shard },
            _ => reader,
        };
        let key = (piece.tensor, need.clone());
        let shared = role != reader;
        if let Some(made) = self.slices.get(&key).filter(|_| shared) {
            return Ok(*made);
        }
        let list = |n: u64| Attr::List([Attr::Int(n as i64)].into());
        let attrs: Attrs = [
            ("begin".into(), list(need.begin)),
            ("end".into(), list(need.end)),
            ("strides".into(), list(1)),
            ("slice_mode".into(), Attr::Str("end".into())),
            ("axes".into(), list(need.axis as u64)),
        ]
        .into_iter()
        .collect();
        let made = self.call("strided_slice", attrs, vec![Arg::Tensor(piece.tensor)], role)?;
        if shared {
            self.slices.insert(key, made);
        }
        Ok(made)
    }

    /// Adds a call of the operator `name`, which has one result.
    fn call(&mut self, name: &str, attrs: Attrs, args: Vec<Arg>, role: Role) -> Result<TensorId, SplitError> {
        let operator = Operator {
            name: name.into(),
            attrs,
            args,
            outputs: Vec::new(),
            tuple_result: false,
            label: None,
            place: None,
        };
        let unknown = || TypeError { op: name.into(), what: "is not known".into() };
        let def = lookup(name).ok_or_else(unknown)?;
        let args = self.out.graph.arg_types(&operator);
        let ty = (def.infer)(&Call { def, attrs: &operator.attrs, args: &args, values: &[] })?;
        let Type::Tensor(ty) = ty else { return Err(unknown().into()) };
        self.add(operator, &[ty], role).first().copied().ok_or_else(|| unknown().into())
    }

    pub fn add(&mut self, operator: Operator, types: &[TensorType], role: Role) -> Vec<TensorId> {
        let id = self.out.graph.add_operator(operator, types);
        self.out.roles.push(role);
        self.out.graph.operator(id).outputs.clone()
    }
}

pub(super) fn lost(tensor: TensorId) -> SplitError {
    TypeError { op: "split".into(), what: format!("tensor {} is not made before it is used", tensor.0) }.into()
}
