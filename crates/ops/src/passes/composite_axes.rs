//! The split axes of composite operators, which follow from their decompositions: a range of a result axis is propagated
//! backwards through the split axes of the inner operators, until each operand is sliced along one axis or read whole.
//!
//! A shard is a composite operator as well, which engines compute by its name. So an axis is left out if a kernel would compute
//! something else on the slices: if no attributes describe the shard, or if the operator generates a tensor whose elements depend
//! on their position.

use std::{ops::Range, sync::Arc};

use edgecut_graph::{Attr, Graph, Operator};

use crate::{
    passes::{
        declared::declared_axes,
        range_maps::{chained, samples},
        range_propagation::{Demand, RangePropagation},
    },
    split::{
        AccessMap, DecompositionSplit, Join, OperatorSplit, RangeFn, SplitAxis,
        composite_attrs::{CompositeAttr, FROM_OPERANDS, attr_of_inner, composite_attr},
    },
};

/// Maximum number of tensors, and of results, of a decomposition that is split: each range is a composition of the maps of all
/// operators after it.
const MAX_TENSORS: usize = 512;

/// A composite operator whose splits are sought.
pub(super) struct Composite<'a> {
    operator: &'a Operator,
    pub decomposition: &'a Arc<Graph>,
    /// The split axes of the decomposition's operators.
    pub axes: Vec<Vec<Arc<SplitAxis>>>,
}

impl<'a> Composite<'a> {
    /// `operator`, which `decomposition` computes; `None` if it cannot be split at all.
    pub fn of(operator: &'a Operator, decomposition: &'a Arc<Graph>) -> Option<Composite<'a>> {
        let inner = &**decomposition;
        let is_known = inner.tensors().all(|(_, tensor)| tensor.ty.shape.fixed().is_some());
        // The importer's own attributes have a dot in their names.
        let mut stated = operator.attrs.iter().map(|(name, _)| name).filter(|name| !name.contains('.'));
        let is_small = inner.tensors().len() <= MAX_TENSORS && inner.outputs.len() <= MAX_TENSORS;
        if !is_small || !is_known || !stated.all(|name| composite_attr(name).is_some()) {
            return None;
        }
        let declared = |(_, part)| declared_axes(inner, part).into_iter().map(Arc::new).collect();
        Some(Composite { operator, decomposition, axes: inner.operators().map(declared).collect() })
    }

    /// The axes of its results along which it can be split into at least two shards.
    pub fn result_axes(&self) -> Vec<SplitAxis> {
        let Some(first) = self.decomposition.outputs.first() else { return Vec::new() };
        let rank = self.decomposition.tensor(*first).ty.shape.rank();
        (0..rank).filter_map(|axis| self.result_axis(axis)).filter(|split| split.size > split.grain).collect()
    }

    /// The split along `axis` of the first result.
    fn result_axis(&self, axis: usize) -> Option<SplitAxis> {
        let shape = &self.decomposition.tensor(*self.decomposition.outputs.first()?).ty.shape;
        let size = shape.get(axis)?.get()?;
        let (sides, propagation) = result_axes(self.decomposition, &self.axes, (axis, size))?;
        self.split(Join::Axis(sides), propagation, Some((axis, shape.rank())))
    }

    /// The split whose shards read what `propagation` found; `None` if no shard computes it by the operator's name. `along` is
    /// the axis of the first result and its rank; `None` for a sum.
    pub fn split(
        &self,
        join: Join,
        propagation: RangePropagation<'_>,
        along: Option<(usize, usize)>,
    ) -> Option<SplitAxis> {
        let (operator, inner) = (self.operator, &**self.decomposition);
        let count = operator.operands().count();
        let mut split = SplitAxis::new(join, propagation.size, count).grain(propagation.grain);
        for (index, input) in inner.inputs().enumerate() {
            match &propagation.demands[input.0 as usize] {
                Some(Demand::Range { axis, steps }) => {
                    let map = chained(steps.clone());
                    *split.operands.get_mut(index)? = Some(AccessMap { axis: *axis, packed: None, map });
                }
                Some(Demand::Parts(access)) => *split.operands.get_mut(index)? = Some(access.clone()),
                Some(Demand::Whole) => {}
                // The decomposition does not read the operand, but an engine may check its size.
                None if inner.tensor(input).ty.shape.elements() != Some(1) => return None,
                None => {}
            }
        }
        if split.operands.iter().all(Option::is_none) {
            return None;
        }
        let split_operator = |choice: Option<(Arc<SplitAxis>, Vec<RangeFn>)>| {
            choice.map(|(axis, steps)| OperatorSplit { axis, map: chained(steps) })
        };
        let operators: Vec<Option<OperatorSplit>> = propagation.choices.into_iter().map(split_operator).collect();
        let mut split = with_attrs(split, operator, inner, &operators, along)?;
        split.decomposition = Some(Arc::new(DecompositionSplit { graph: self.decomposition.clone(), operators }));
        Some(split)
    }
}

/// The axis of each result that is split along with `axis` of the first, `None` for a result that every shard computes whole; and
/// the propagation for them.
fn result_axes<'a>(
    inner: &'a Graph,
    axes: &'a [Vec<Arc<SplitAxis>>],
    (axis, size): (usize, u64),
) -> Option<(Vec<Option<usize>>, RangePropagation<'a>)> {
    let mut sides = vec![Some(axis)];
    let mut propagation = RangePropagation::of(inner, axes, size, &sides)?;
    for output in &inner.outputs[1..] {
        let shape = &inner.tensor(*output).ty.shape;
        let is_along = |side: &usize| shape.get(*side).is_some_and(|n| n.get() == Some(size));
        let sides_by_size = |same: bool| {
            let all = [axis].into_iter().chain((0..shape.rank()).filter(|other| *other != axis));
            all.filter(move |side| *side < shape.rank() && is_along(side) == same).map(Some)
        };
        let tried = sides_by_size(true).chain([None]).chain(sides_by_size(false));
        let (side, found) = tried.into_iter().find_map(|side| {
            let all: Vec<Option<usize>> = sides.iter().copied().chain([side]).collect();
            Some((side, RangePropagation::of(inner, axes, size, &all)?))
        })?;
        sides.push(side);
        propagation = found;
    }
    Some((sides, propagation))
}

/// `split` with the attributes of `operator` that differ in a shard. `None` if no value of one describes the shard. `along` is the
/// axis of the first result and its rank; `None` for a sum.
fn with_attrs(
    mut split: SplitAxis,
    operator: &Operator,
    inner: &Graph,
    operators: &[Option<OperatorSplit>],
    along: Option<(usize, usize)>,
) -> Option<SplitAxis> {
    let length = |range: &Range<u64>| Attr::Int((range.end - range.start) as i64);
    for (name, value) in operator.attrs.iter() {
        let Some(meaning) = composite_attr(name) else { continue };
        match meaning {
            CompositeAttr::Columns if along.is_some_and(|(axis, rank)| axis + 1 == rank) => {
                split = split.attr("N", length);
            }
            CompositeAttr::Reduction if along.is_none() => split = split.attr("K", length),
            CompositeAttr::Heads(_) | CompositeAttr::SizesOfHeads if along.is_none() => return None,
            CompositeAttr::Heads(name) if along.is_some_and(is_of_heads) => split = of_heads(split, name, value)?,
            CompositeAttr::SizesOfHeads if along.is_some_and(is_of_heads) => return None,
            _ => {}
        }
    }
    for ((_, part), inner_split) in inner.operators().zip(operators) {
        let Some(OperatorSplit { axis, map }) = inner_split else { continue };
        for (index, (key, value)) in axis.attrs.iter().enumerate() {
            let ranges = samples(split.size, split.grain);
            let is_changed = ranges.iter().any(|range| part.attrs.get(key) != Some(&value(&map(range))));
            if FROM_OPERANDS.contains(key) || !is_changed {
                continue;
            }
            let name = attr_of_inner(key).filter(|name| split.attrs.iter().all(|(known, _)| known != name))?;
            let (axis, map) = (axis.clone(), map.clone());
            split = split.attr(name, move |range| (axis.attrs[index].1)(&map(range)));
            if *key == "padding" && operator.attrs.get("auto_pad").is_some() {
                split = split.attr("auto_pad", |_| Attr::Str("NOTSET".into()));
            }
        }
    }
    Some(split)
}

/// `split` of an operator that has `value` heads by its attribute `name`, into shards of whole heads.
fn of_heads(split: SplitAxis, name: &'static str, value: &Attr) -> Option<SplitAxis> {
    let heads = value.int().and_then(|heads| u64::try_from(heads).ok()).filter(|heads| *heads > 0)?;
    let channels = split.size.checked_div(heads).filter(|channels| channels * heads == split.size && *channels > 0)?;
    Some(split.grain(channels).attr(name, move |range| Attr::Int(((range.end - range.start) / channels) as i64)))
}

/// Whether the axis is that of heads, or of channels that contain them: the layouts `[…, channels]` up to rank 3, and
/// `[…, heads, positions, channels]`.
fn is_of_heads((axis, rank): (usize, usize)) -> bool {
    match rank {
        0..=3 => axis + 1 == rank,
        _ => axis + 3 == rank,
    }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{Attrs, DType, OperatorId, Origin, TensorData, TensorId, TensorType};

    use super::*;
    use crate::passes::axes::axes;

    fn list(entries: &[i64]) -> Attr {
        Attr::List(entries.iter().map(|n| Attr::Int(*n)).collect())
    }

    /// A call of a decomposition: see [`Composite`].
    type InnerCall = (&'static str, &'static [usize], Vec<(&'static str, Attr)>, &'static [u64]);

    /// A composite operator of x and w, computed by `calls`: name, operands by index (0 is x, 1 is w, 2 the constant 0, 1, 2, …,
    /// then results in order), attributes, and the result's shape. The results of the last `results` calls are its own.
    struct Composite {
        operands: [&'static [u64]; 2],
        constant: &'static [u64],
        calls: Vec<InnerCall>,
        attrs: Vec<(&'static str, Attr)>,
        results: usize,
    }

    fn attributes(attrs: &[(&'static str, Attr)]) -> Attrs {
        attrs.iter().map(|(key, value)| ((*key).into(), value.clone())).collect()
    }

    impl Composite {
        fn graph(&self) -> Graph {
            let ty = |shape: &[u64]| TensorType::of(DType::F32, shape);
            let count = self.constant.iter().product::<u64>();
            let bytes: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
            let data = TensorData::new(DType::F32, self.constant, bytes).unwrap();
            let mut inner = Graph::new();
            let mut tensors: Vec<TensorId> =
                self.operands.iter().map(|shape| inner.add_tensor("x", ty(shape), Origin::Input)).collect();
            tensors.push(inner.add_tensor("c", ty(self.constant), Origin::Constant(data)));
            for (name, operands, attrs, shape) in &self.calls {
                let args: Vec<TensorId> = operands.iter().map(|at| tensors[*at]).collect();
                let id = inner.add_operator(Operator::new(*name, args).with_attrs(attributes(attrs)), &[ty(shape)]);
                tensors.push(inner.operator(id).outputs[0]);
            }
            inner.outputs = tensors.split_off(tensors.len() - self.results);
            let mut graph = Graph::new();
            let operands = self.operands.map(|shape| graph.add_tensor("x", ty(shape), Origin::Input));
            let operator = Operator::new("my.op", operands).with_attrs(attributes(&self.attrs));
            let results: Vec<TensorType> = inner.outputs.iter().map(|id| inner.tensor(*id).ty.clone()).collect();
            let id = graph.add_operator(operator.with_decomposition(Arc::new(inner)), &results);
            graph.outputs = graph.operator(id).outputs.clone();
            graph
        }

        /// For each split axis, the axes of the results.
        fn sides(&self) -> Vec<Vec<Option<usize>>> {
            let graph = self.graph();
            let sides = |axis: SplitAxis| match axis.join {
                Join::Axis(sides) => sides,
                Join::Sum | Join::Replicated => Vec::new(),
            };
            axes(&graph, graph.operator(OperatorId(0))).into_iter().map(sides).collect()
        }
    }

    fn conv() -> Composite {
        let attrs = vec![("padding", list(&[1, 1, 1, 1])), ("channels", Attr::Int(6)), ("kernel_size", list(&[3, 3]))];
        Composite {
            operands: [&[2, 4, 8, 5], &[6, 4, 3, 3]],
            constant: &[],
            calls: vec![
                ("nn.relu", &[0], vec![], &[2, 4, 8, 5]),
                ("nn.conv2d", &[3, 1], attrs, &[2, 6, 8, 5]),
                ("add", &[4, 2], vec![], &[2, 6, 8, 5]),
            ],
            attrs: vec![("pads", list(&[1, 1, 1, 1])), ("auto_pad", Attr::Str("SAME_UPPER".into()))],
            results: 1,
        }
    }

    #[test]
    fn a_shard_has_attributes_and_a_decomposition_of_its_own() {
        let graph = conv().graph();
        let operator = graph.operator(OperatorId(0));
        assert_eq!(conv().sides(), [0, 1, 2, 3].map(|axis| [Some(axis)]));
        let shard = axes(&graph, operator)[2].shard(&graph, operator, &(0..3)).unwrap();
        assert_eq!(
            (shard.attrs.get("pads"), shard.attrs.get("auto_pad")),
            (Some(&list(&[1, 1, 0, 1])), Some(&Attr::Str("NOTSET".into())))
        );
        let slices = shard.operands.iter().map(|slice| slice.as_ref().map(|s| (s.axis, s.begin..s.end)));
        assert_eq!(slices.collect::<Vec<_>>(), [Some((2, 0..4)), None]);
        let inner = shard.decomposition.unwrap();
        let types: Vec<String> = inner.tensors().map(|(_, tensor)| tensor.ty.to_string()).collect();
        let (x, y) = ("float32[2,4,4,5]", "float32[2,6,3,5]");
        assert_eq!(types, [x, "float32[6,4,3,3]", "float32[]", x, y, y]);
        let channels = axes(&graph, operator)[1].shard(&graph, operator, &(2..6)).unwrap();
        assert_eq!(channels.attrs, operator.attrs);
        assert_eq!(channels.decomposition.unwrap().operator(OperatorId(1)).attrs.get("channels"), Some(&Attr::Int(4)));
    }

    #[test]
    fn axes_that_no_shard_can_express_are_left_out() {
        let same: &[u64] = &[4, 6];
        let add = |constant| Composite {
            operands: [same, &[6]],
            constant,
            calls: vec![("add", &[0, 2], vec![], same), ("add", &[3, 1], vec![], same)],
            attrs: vec![],
            results: 1,
        };
        let with = |attrs: &[(&'static str, Attr)]| Composite { attrs: attrs.to_vec(), ..add(&[]) };
        let transposed = Composite {
            operands: [&[4, 4], &[4]],
            calls: vec![
                ("transpose", &[0], vec![("axes", list(&[1, 0]))], &[4, 4]),
                ("add", &[3, 0], vec![], &[4, 4]),
                ("add", &[4, 1], vec![], &[4, 4]),
            ],
            ..add(&[])
        };
        let unread = Composite { calls: vec![("nn.relu", &[0], vec![], same)], ..add(&[]) };
        let cases: [(&str, Composite, &[usize]); 11] = [
            ("a sum", add(&[]), &[0, 1]),
            ("a constant that depends on the position", add(&[6]), &[0]),
            ("a constant that depends on the row", add(&[4, 1]), &[1]),
            ("a constant that depends on the column", add(&[1, 6]), &[0]),
            ("an attribute without a known meaning", with(&[("sizes", Attr::Int(6))]), &[]),
            ("an attribute of the importer's own", with(&[("onnx.opset", Attr::Int(17))]), &[0, 1]),
            ("channels that contain heads", with(&[("num_heads", Attr::Int(2))]), &[0, 1]),
            ("channels of heads of unequal sizes", with(&[("num_heads", Attr::Int(4))]), &[0]),
            ("an attribute for the number of columns", with(&[("N", Attr::Int(6))]), &[0, 1]),
            ("two ranges of one operand", transposed, &[]),
            ("an operand that the decomposition does not read", unread, &[]),
        ];
        for (what, composite, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|axis| [Some(*axis)]).collect();
            assert_eq!(composite.sides(), expected, "{what}");
        }
        let columns = with(&[("N", Attr::Int(6))]).graph();
        let operator = columns.operator(OperatorId(0));
        let shard = axes(&columns, operator)[1].shard(&columns, operator, &(1..3)).unwrap();
        assert_eq!(shard.attrs.get("N"), Some(&Attr::Int(2)));
        let heads = with(&[("num_heads", Attr::Int(2))]).graph();
        let operator = heads.operator(OperatorId(0));
        let along_heads = &axes(&heads, operator)[1];
        assert_eq!(along_heads.grain, 3);
        assert_eq!(along_heads.shard(&heads, operator, &(3..6)).unwrap().attrs.get("num_heads"), Some(&Attr::Int(1)));
    }

    #[test]
    fn the_grain_follows_from_the_decomposition() {
        // The reshape merges rows of 4 positions into one axis, which can be cut between rows only.
        let rows = Composite {
            operands: [&[6, 4, 3], &[3]],
            constant: &[],
            calls: vec![
                ("reshape", &[0], vec![("newshape", list(&[24, 3]))], &[24, 3]),
                ("add", &[3, 1], vec![], &[24, 3]),
            ],
            attrs: vec![],
            results: 1,
        };
        let graph = rows.graph();
        let found = axes(&graph, graph.operator(OperatorId(0)));
        assert_eq!(found.iter().map(|axis| (axis.size, axis.grain)).collect::<Vec<_>>(), [(24, 4), (3, 1)]);
        let map = &found[0].operands[0].as_ref().unwrap().map;
        assert_eq!(map(&(8..20)), 2..5);
    }

    #[test]
    fn other_results_are_split_along_with_the_first_or_computed_whole() {
        let square: &[u64] = &[4, 4];
        let of = |last: InnerCall| Composite {
            operands: [square, &[4]],
            constant: &[],
            calls: vec![("add", &[0, 1], vec![], square), last],
            attrs: vec![],
            results: 2,
        };
        let (both, exchanged) =
            ([vec![Some(0), Some(0)], vec![Some(1), Some(1)]], [vec![Some(0), Some(1)], vec![Some(1), Some(0)]]);
        assert_eq!(of(("nn.relu", &[3], vec![], square)).sides(), both);
        assert_eq!(of(("transpose", &[3], vec![("axes", list(&[1, 0]))], square)).sides(), exchanged);
        // A sum over columns cannot be split along them.
        let sums = of(("sum", &[3], vec![("axis", list(&[1])), ("keepdims", Attr::Bool(true))], &[4, 1]));
        assert_eq!(sums.sides(), [[Some(0), Some(0)]]);
        // The second result depends on the bias alone, which is read whole if rows are split.
        assert_eq!(of(("nn.relu", &[1], vec![], &[4])).sides(), [[Some(0), None], [Some(1), Some(0)]]);
    }
}
