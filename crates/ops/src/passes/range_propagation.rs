//! Propagation of the range of a shard through a graph, from its results backwards to its inputs, along the split axes of its
//! operators.

use std::{collections::BTreeSet, sync::Arc};

use edgecut_graph::{Graph, Operator, OperatorId, Origin, TensorData, TensorId};

use crate::{
    passes::{
        packed_parts::{InputSlice, PackedSplit, packed_split},
        range_maps::{applied, samples},
    },
    split::{AccessMap, Join, RangeFn, SplitAxis, gcd, scaled},
};

/// What shards need of each tensor, and how each operator is split.
pub(super) struct RangePropagation<'a> {
    inner: &'a Graph,
    /// Length of the axis that is split.
    pub size: u64,
    pub grain: u64,
    /// By tensor.
    pub demands: Vec<Option<Demand>>,
    /// By operator: the axis it is split along, and the maps from the shard's range to its own.
    pub choices: Vec<Option<(Arc<SplitAxis>, Vec<RangeFn>)>>,
}

/// What a shard needs of a tensor.
pub(super) enum Demand {
    Whole,
    /// The range of `axis` that the composition of `steps` maps the shard's range to.
    Range {
        axis: usize,
        steps: Vec<RangeFn>,
    },
    /// A range of each tensor that an axis of an input packs.
    Parts(AccessMap),
}

impl<'a> RangePropagation<'a> {
    /// Propagates a range of the axes `sides` of the first results. `None` if an operator cannot be split as its readers demand,
    /// or they demand different ranges of a tensor.
    pub fn of(
        inner: &'a Graph,
        axes: &[Vec<Arc<SplitAxis>>],
        size: u64,
        sides: &[Option<usize>],
    ) -> Option<RangePropagation<'a>> {
        let mut propagation = RangePropagation::new(inner, size);
        for (output, side) in inner.outputs.iter().zip(sides) {
            let demand = match *side {
                Some(axis) => propagation.proportional_range(*output, axis)?,
                None => Demand::Whole,
            };
            propagation.require(*output, demand)?;
        }
        propagation.propagate(axes)?;
        Some(propagation)
    }

    /// Nothing is demanded yet.
    pub fn new(inner: &'a Graph, size: u64) -> RangePropagation<'a> {
        let (mut demands, mut choices) = (Vec::new(), Vec::new());
        demands.resize_with(inner.tensors().len(), || None);
        choices.resize_with(inner.operators().len(), || None);
        RangePropagation { inner, size, grain: 1, demands, choices }
    }

    /// Propagates the demands so far to the inputs. `None` as of [`RangePropagation::of`].
    pub fn propagate(&mut self, axes: &[Vec<Arc<SplitAxis>>]) -> Option<()> {
        let operators: Vec<_> = self.inner.operators().zip(axes).collect();
        let mut parts: Vec<InputSlice> = Vec::new();
        for ((id, operator), axes) in operators.into_iter().rev() {
            match self.required(operator)? {
                Required::Nothing => {}
                Required::Whole => {
                    operator.operands().try_for_each(|operand| self.require(operand, Demand::Whole))?;
                }
                Required::Range(outputs, steps) => {
                    let is_along = |axis: &&Arc<SplitAxis>| match &axis.join {
                        Join::Axis(of) => outputs.iter().all(|(index, axis)| of.get(*index) == Some(&Some(*axis))),
                        Join::Sum | Join::Replicated => false,
                    };
                    match axes.iter().find(is_along) {
                        Some(axis) => self.choose(id, axis, steps)?,
                        None => parts.push(InputSlice::of(self.inner, id, &outputs, steps)?),
                    }
                }
            }
        }
        let inputs: BTreeSet<TensorId> = parts.iter().map(|part| part.input).collect();
        inputs.into_iter().try_for_each(|input| {
            let of_input = parts.iter().filter(|part| part.input == input).collect();
            let PackedSplit { access, grain, slices } = packed_split(self.inner, of_input, (self.size, self.grain))?;
            self.grain = grain;
            self.require(input, Demand::Parts(access))?;
            slices.into_iter().for_each(|(id, axis, steps)| self.choices[id.0 as usize] = Some((axis, steps)));
            Some(())
        })
    }

    /// Splits operator `id` along `axis`, in the ranges that `steps` map the shard's range to.
    pub fn choose(&mut self, id: OperatorId, axis: &Arc<SplitAxis>, steps: Vec<RangeFn>) -> Option<()> {
        self.refine(&steps, axis)?;
        for (operand, access) in self.inner.operator(id).operands().zip(&axis.operands) {
            let demand = match access {
                None => Demand::Whole,
                Some(access) => {
                    let steps = steps.iter().chain([&access.map]).cloned().collect();
                    Demand::Range { axis: access.axis, steps }
                }
            };
            self.require(operand, demand)?;
        }
        self.choices[id.0 as usize] = Some((axis.clone(), steps));
        Some(())
    }

    /// The range of `axis` of a result that corresponds to a shard's range of the first result. Refines the grain until ends are integers.
    /// `None` if only the whole axis has integer ends.
    fn proportional_range(&mut self, result: TensorId, axis: usize) -> Option<Demand> {
        let size = self.inner.tensor(result).ty.shape.get(axis)?.get()?;
        let mut steps: Vec<RangeFn> = Vec::new();
        if size != self.size {
            let whole = self.size / gcd(size, self.size);
            self.grain = self.grain.checked_mul(whole / gcd(self.grain, whole))?;
            steps.push(Arc::new(scaled(size, self.size)));
        }
        (self.grain < self.size || size == self.size).then_some(Demand::Range { axis, steps })
    }

    /// The demand of later operators for the results of `operator`; `None` if some are needed whole and others in part, or
    /// in different ranges.
    fn required(&self, operator: &Operator) -> Option<Required> {
        let mut required = Required::Nothing;
        for (index, output) in operator.outputs.iter().enumerate() {
            required = match (required, &self.demands[output.0 as usize]) {
                (before, None) => before,
                (Required::Nothing | Required::Whole, Some(Demand::Whole)) => Required::Whole,
                (Required::Nothing, Some(Demand::Range { axis, steps })) => {
                    Required::Range(vec![(index, *axis)], steps.clone())
                }
                (Required::Range(mut outputs, before), Some(Demand::Range { axis, steps }))
                    if self.agree(&before, steps) =>
                {
                    outputs.push((index, *axis));
                    Required::Range(outputs, before)
                }
                _ => return None,
            };
        }
        Some(required)
    }

    /// Adds a demand for `tensor`. `None` if it contradicts an earlier one, or `tensor` is a constant that is not uniform along
    /// the axis: the operator generates it itself, always from position 0.
    pub fn require(&mut self, tensor: TensorId, demand: Demand) -> Option<()> {
        if let (Origin::Constant(data), Demand::Range { axis, .. }) = (&self.inner.tensor(tensor).origin, &demand)
            && !is_uniform(data, *axis)
        {
            return None;
        }
        let agrees = match (&self.demands[tensor.0 as usize], &demand) {
            (None, _) | (Some(Demand::Whole), Demand::Whole) => true,
            (Some(Demand::Range { axis: a, steps: before }), Demand::Range { axis: b, steps }) => {
                a == b && self.agree(before, steps)
            }
            _ => false,
        };
        if agrees {
            self.demands[tensor.0 as usize].get_or_insert(demand);
        }
        agrees.then_some(())
    }

    /// Coarsens the grain until `steps` map its multiples to multiples of the grain of `axis`. `None` if none does.
    fn refine(&mut self, steps: &[RangeFn], axis: &SplitAxis) -> Option<()> {
        if axis.grain > 1 {
            let unit = applied(steps, &(0..self.grain)).end;
            let grain = self.grain.checked_mul(axis.grain / gcd(axis.grain, unit))?;
            self.grain = grain.min(self.size);
            let on_grain = |at: u64| at.is_multiple_of(axis.grain) || at == axis.size;
            let mut ranges = samples(self.size, self.grain).into_iter().map(|range| applied(steps, &range));
            return ranges.all(|range| on_grain(range.start) && on_grain(range.end)).then_some(());
        }
        Some(())
    }

    fn agree(&self, a: &[RangeFn], b: &[RangeFn]) -> bool {
        samples(self.size, self.grain).iter().all(|range| applied(a, range) == applied(b, range))
    }
}

enum Required {
    Nothing,
    Whole,
    /// By result, the axis of which a range is needed; and the maps from the shard's range to it.
    Range(Vec<(usize, usize)>, Vec<RangeFn>),
}

/// Whether `data` is constant along `axis`.
fn is_uniform(data: &TensorData, axis: usize) -> bool {
    let inner = data.shape().iter().skip(axis + 1).product::<u64>().saturating_mul(data.dtype().size());
    let length = data.shape().get(axis).copied().unwrap_or(1);
    let (Ok(inner), Ok(all)) = (usize::try_from(inner), usize::try_from(inner.saturating_mul(length))) else {
        return false;
    };
    let is_repeated = |rows: &[u8]| rows.chunks(inner).all(|row| rows.starts_with(row));
    inner > 0 && all > 0 && data.bytes().chunks(all).all(is_repeated)
}
