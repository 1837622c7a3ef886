//! A graph with stretches of operators computed in parts, one part of the whole stretch after the other, so that the
//! tensors inside a stretch never exist whole.
//!
//! A part computes all that it needs itself: where windows reach beyond a part (the halo), neighbouring parts compute
//! the same rows twice. What of each tensor a part needs follows backwards from the stretch's last operator
//! ([`Backwards`]). The result is an ordinary graph, as in [`sharded`](super::sharded).

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use serde::{Deserialize, Serialize};

use super::{
    shard::{Slice, SplitError, axes},
    sharded::{Layout, Making, Piece, Role, Sharded, lost},
    split::{Join, SplitAxis},
};
use crate::graph::{Arg, Graph, Operator, OperatorId, Origin, TensorId, TensorType};

/// Operators that follow each other in an order of the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    pub operators: Vec<OperatorId>,
    /// How many parts it is computed in; 1 if whole.
    pub parts: u64,
    /// The axis of the first result of the last operator along which the parts lie. Of no meaning in one part.
    pub axis: usize,
}

/// What the operators of a graph can be split along, and who reads whom.
pub struct Splits<'a> {
    pub graph: &'a Graph,
    axes: Vec<Vec<SplitAxis>>,
    /// Operators that compute from parameters alone.
    constant: Vec<bool>,
    readers: Vec<Vec<OperatorId>>,
}

/// What an operator computes in each part.
#[derive(Debug, Clone)]
pub struct Portion {
    /// Number of one of the operator's axes.
    number: usize,
    /// Positions along the axis in all.
    pub size: u64,
    /// By part; neighbours may overlap.
    pub ranges: Vec<Range<u64>>,
    /// For each of its outputs whether parts of it lie along the axis.
    outputs: Vec<Option<usize>>,
}

/// The portions of a stretch, found from its last operator backwards.
pub struct Backwards<'s, 'a> {
    splits: &'s Splits<'a>,
    parts: u64,
    axis: usize,
    needs: HashMap<TensorId, Need>,
    inside: HashSet<OperatorId>,
    portions: HashMap<OperatorId, Portion>,
}

/// What the parts need of a tensor.
#[derive(Debug, Clone)]
enum Need {
    Whole,
    Along { axis: usize, ranges: Vec<Range<u64>> },
}

impl<'a> Splits<'a> {
    pub fn of(graph: &'a Graph) -> Splits<'a> {
        let mut constant = vec![false; graph.operators().len()];
        for (id, operator) in graph.operators() {
            constant[id.0 as usize] = operator.operands().all(|tensor| match graph.tensor(tensor).origin {
                Origin::Operator { operator, .. } => constant[operator.0 as usize],
                Origin::Input => false,
                Origin::Parameter | Origin::Constant(_) => true,
            });
        }
        let axes = graph.operators().map(|(_, operator)| axes(graph, operator)).collect();
        Splits { graph, axes, constant, readers: graph.consumers() }
    }

    /// Whether an operator computes from parameters alone: it is never split, every part that reads it has its own.
    pub fn is_constant(&self, operator: OperatorId) -> bool {
        self.constant[operator.0 as usize]
    }

    /// The axes of the first result of `operator` along which it can be computed in parts.
    pub fn result_axes(&self, operator: OperatorId) -> Vec<usize> {
        let along = |axis: &SplitAxis| match &axis.join {
            Join::Axis(outputs) => outputs.first().copied().flatten(),
            Join::Sum => None,
        };
        self.axes[operator.0 as usize].iter().filter_map(along).collect()
    }

    fn is_read_outside(&self, tensor: TensorId, inside: &HashSet<OperatorId>) -> bool {
        self.graph.outputs.contains(&tensor)
            || self.readers[tensor.0 as usize].iter().any(|reader| !inside.contains(reader))
    }
}

impl<'s, 'a> Backwards<'s, 'a> {
    /// Begins a stretch that is computed in `parts` along `axis` of its last operator's first result.
    pub fn new(splits: &'s Splits<'a>, parts: u64, axis: usize) -> Backwards<'s, 'a> {
        let (needs, inside, portions) = Default::default();
        Backwards { splits, parts, axis, needs, inside, portions }
    }

    /// Puts an operator before all others of the stretch. False if it cannot be computed in parts that give what those
    /// need; the stretch is then of no use any more.
    pub fn push(&mut self, id: OperatorId) -> bool {
        self.inside.insert(id);
        self.splits.is_constant(id) || self.portion(id).is_some()
    }

    /// What an operator computes in each part; `None` for one that computes from parameters alone.
    pub fn of(&self, operator: OperatorId) -> Option<&Portion> {
        self.portions.get(&operator)
    }

    /// What part number `part` of an operator needs of each operand that is no parameter: the length of a range of one
    /// of its axes, and the axis' size; `None` if that is all of it.
    pub fn reads(&self, id: OperatorId, part: usize) -> impl Iterator<Item = (TensorId, Option<Range<u64>>, u64)> {
        let graph = self.splits.graph;
        let portion = self.portions.get(&id);
        let axis = portion.map(|portion| &self.splits.axes[id.0 as usize][portion.number]);
        let reach = move |index: usize| axis?.operands.get(index)?.as_ref();
        graph.operator(id).operands().enumerate().filter_map(move |(index, tensor)| {
            let tensor_of = graph.tensor(tensor);
            let is_parameter = match tensor_of.origin {
                Origin::Parameter | Origin::Constant(_) => true,
                Origin::Operator { operator, .. } => self.splits.is_constant(operator),
                Origin::Input => false,
            };
            let range = reach(index).zip(portion).map(|(reach, portion)| {
                let size = tensor_of.ty.shape.get(reach.axis).and_then(|d| d.get()).unwrap_or(1);
                ((reach.of)(&portion.ranges[part]), size)
            });
            let (range, size) = range.map_or((None, 1), |(range, size)| (Some(range), size));
            (!is_parameter).then_some((tensor, range, size))
        })
    }

    fn portion(&mut self, id: OperatorId) -> Option<()> {
        let graph = self.splits.graph;
        let operator = graph.operator(id);
        let axes = &self.splits.axes[id.0 as usize];
        // All needs must lie along one axis of the operator.
        let mut wanted: Option<(usize, Vec<Range<u64>>)> = None;
        for (index, output) in operator.outputs.iter().enumerate() {
            match self.needs.get(output) {
                None => {}
                Some(Need::Whole) => return None,
                Some(Need::Along { axis, ranges }) => {
                    let number = along(axes, index, *axis)?;
                    wanted = match wanted {
                        None => Some((number, ranges.clone())),
                        Some((before, hull)) if before == number => Some((number, hulls(&hull, ranges))),
                        Some(_) => return None,
                    };
                }
            }
        }
        let (number, mut ranges) = match wanted {
            Some(wanted) => wanted,
            // Nothing inside needs it: it is a result of the stretch.
            None => {
                let number = along(axes, 0, self.axis)?;
                (number, equal(axes[number].size, axes[number].grain, self.parts))
            }
        };
        let axis = &axes[number];
        let Join::Axis(outputs) = &axis.join else { return None };
        let mut read_outside = false;
        for (index, output) in operator.outputs.iter().enumerate() {
            let outside = self.splits.is_read_outside(*output, &self.inside);
            let read = outside || self.needs.contains_key(output);
            if read && outputs.get(index).copied().flatten().is_none() {
                return None;
            }
            read_outside |= outside;
        }
        for range in &mut ranges {
            *range = range.start - range.start % axis.grain..range.end.next_multiple_of(axis.grain).min(axis.size);
        }
        if read_outside {
            // The parts together must be all of it.
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
        for (tensor, reach) in operator.operands().zip(&axis.operands) {
            match graph.tensor(tensor).origin {
                Origin::Parameter | Origin::Constant(_) => continue,
                Origin::Operator { operator, .. } if self.splits.is_constant(operator) => continue,
                // It was put before one of its own operands.
                Origin::Operator { operator, .. } if self.inside.contains(&operator) => return None,
                _ => {}
            }
            let need = match reach {
                None => Need::Whole,
                Some(reach) => Need::Along { axis: reach.axis, ranges: ranges.iter().map(&*reach.of).collect() },
            };
            let need = match (self.needs.remove(&tensor), need) {
                (None, need) => need,
                (Some(Need::Along { axis: a, ranges: x }), Need::Along { axis: b, ranges: y }) if a == b => {
                    Need::Along { axis: a, ranges: hulls(&x, &y) }
                }
                _ => Need::Whole,
            };
            self.needs.insert(tensor, need);
        }
        self.portions.insert(id, Portion { number, size: axis.size, ranges, outputs: outputs.clone() });
        Some(())
    }
}

/// The number of the axis along which the parts of output `index` lie along its axis `axis`.
fn along(axes: &[SplitAxis], index: usize, axis: usize) -> Option<usize> {
    axes.iter().position(|split| match &split.join {
        Join::Axis(outputs) => outputs.get(index) == Some(&Some(axis)),
        Join::Sum => false,
    })
}

/// Parts of equal length, the last one shorter if it must be: what is computed for parts in the middle is then the same.
fn equal(size: u64, grain: u64, parts: u64) -> Vec<Range<u64>> {
    let step = size.div_ceil(parts.max(1)).next_multiple_of(grain);
    (0..parts).map(|part| (part * step).min(size)..((part + 1) * step).min(size)).collect()
}

fn hulls(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    a.iter().zip(b).map(|(a, b)| a.start.min(b.start)..a.end.max(b.end)).collect()
}

/// Computes the stretches in parts; together they are all operators, in an order in which they can be computed.
/// [`Role`]s tell the part of an operator as its shard.
///
/// # Errors
/// If a stretch cannot be computed in parts as it says, or a part needs nothing of some operand.
pub fn tiled(splits: &Splits<'_>, stretches: &[Stretch]) -> Result<Sharded, SplitError> {
    let graph = splits.graph;
    let mut made = Making::of(graph);
    for stretch in stretches {
        if stretch.parts == 1 {
            for &id in &stretch.operators {
                let operator = graph.operator(id);
                operator
                    .operands()
                    .try_for_each(|tensor| join(&mut made, tensor, Role::Prepare { of: id, shard: 0 }))?;
                made.keep(id, operator)?;
            }
            continue;
        }
        let mut backwards = Backwards::new(splits, stretch.parts, stretch.axis);
        if let Some(refused) = stretch.operators.iter().rev().find(|id| !backwards.push(**id)) {
            let op = graph.operator(*refused).name.to_string();
            let axes = splits.axes[refused.0 as usize].len();
            return Err(SplitError::NoAxis { op, axis: stretch.axis, axes });
        }
        for part in 0..stretch.parts as usize {
            Part { made: &mut made, backwards: &backwards, part, local: HashMap::new() }.add(&stretch.operators)?;
        }
        for &id in &stretch.operators {
            if let Some(portion) = backwards.of(id) {
                for (output, axis) in graph.operator(id).outputs.iter().zip(&portion.outputs) {
                    if let Some(axis) = *axis {
                        made.layouts[output.0 as usize] = Layout::Side { axis, ranges: portion.ranges.clone() };
                    }
                }
            }
        }
    }
    for output in &graph.outputs {
        join(&mut made, *output, Role::Output)?;
        let new = made.needed(*output, None, Role::Output)?;
        made.out.graph.outputs.push(new);
    }
    Ok(made.out)
}

/// Makes one tensor of the pieces of another, once for all that read it.
fn join(made: &mut Making<'_>, tensor: TensorId, role: Role) -> Result<(), SplitError> {
    let at = tensor.0 as usize;
    if made.layouts[at] != Layout::Whole {
        let joined = made.needed(tensor, None, role)?;
        made.out.graph.tensor_mut(joined).name = made.whole.tensor(tensor).name.clone();
        made.at[at] = vec![Piece { tensor: joined, by: None }];
        made.layouts[at] = Layout::Whole;
    }
    Ok(())
}

/// One part of a stretch.
struct Part<'m, 'g, 'b> {
    made: &'m mut Making<'g>,
    backwards: &'b Backwards<'b, 'g>,
    part: usize,
    /// What this part has made: the tensor, and which range of which axis of the whole it is.
    local: HashMap<TensorId, Local>,
}

/// What a part has made, and which range of which axis of the whole it is; `None` if all of it.
type Local = (TensorId, Option<(usize, Range<u64>)>);

impl Part<'_, '_, '_> {
    fn add(&mut self, operators: &[OperatorId]) -> Result<(), SplitError> {
        let graph = self.made.whole;
        for &id in operators {
            let operator = graph.operator(id);
            let (of, shard) = (id, self.part as u32);
            let mut copy = operator.clone();
            let (types, range) = match self.backwards.of(id) {
                None => {
                    copy.args = self.operands(operator, &[], id)?;
                    (operator.outputs.iter().map(|t| graph.tensor(*t).ty.clone()).collect::<Vec<TensorType>>(), None)
                }
                Some(portion) => {
                    let axis = &self.backwards.splits.axes[id.0 as usize][portion.number];
                    let range = &portion.ranges[self.part];
                    let shard = axis.shard(graph, operator, range)?;
                    copy.args = self.operands(operator, &shard.operands, id)?;
                    copy.attrs = shard.attrs;
                    (shard.types, Some((&portion.outputs, range)))
                }
            };
            let outputs = self.made.add(copy, &types, Role::Compute { of, shard });
            for (index, (old, new)) in operator.outputs.iter().zip(outputs).enumerate() {
                let axis = range.and_then(|(axes, range)| Some(((*axes.get(index)?)?, range.clone())));
                let suffix =
                    axis.as_ref().map_or(String::new(), |(_, range)| format!("[{}..{}]", range.start, range.end));
                self.made.out.graph.tensor_mut(new).name = format!("{}{suffix}", graph.tensor(*old).name).into();
                self.local.insert(*old, (new, axis.clone()));
                let pieces = &mut self.made.at[old.0 as usize];
                if axis.is_some() || pieces.is_empty() {
                    pieces.push(Piece { tensor: new, by: Some((of, shard)) });
                }
            }
        }
        Ok(())
    }

    fn operands(
        &mut self,
        operator: &Operator,
        needs: &[Option<Slice>],
        id: OperatorId,
    ) -> Result<Vec<Arg>, SplitError> {
        let mut needs = needs.iter();
        let mut args = Vec::with_capacity(operator.args.len());
        for arg in &operator.args {
            let mut one = |tensor: &TensorId| self.operand(*tensor, needs.next().and_then(Option::as_ref), id);
            args.push(match arg {
                Arg::Tensor(tensor) => Arg::Tensor(one(tensor)?),
                Arg::Tuple(tensors) => Arg::Tuple(tensors.iter().map(&mut one).collect::<Result<_, _>>()?),
            });
        }
        Ok(args)
    }

    fn operand(&mut self, tensor: TensorId, need: Option<&Slice>, id: OperatorId) -> Result<TensorId, SplitError> {
        let role = Role::Prepare { of: id, shard: self.part as u32 };
        let Some((local, range)) = self.local.get(&tensor).cloned() else {
            if need.is_none() {
                join(self.made, tensor, role)?;
            }
            return self.made.needed(tensor, need, role);
        };
        let piece = Piece { tensor: local, by: None };
        match (need, range) {
            (None, _) => Ok(local),
            (Some(need), Some((axis, range))) if need.axis == axis => {
                // The needs of the whole stretch are what the portions were made of.
                let (Some(begin), Some(end)) = (need.begin.checked_sub(range.start), need.end.checked_sub(range.start))
                else {
                    return Err(lost(tensor));
                };
                self.made.slice(piece, Some(&Slice { axis, begin, end }), role)
            }
            (need, _) => self.made.slice(piece, need, role),
        }
    }
}
