//! Splits operators of a graph into shards: each shard becomes an operator, with slices and concatenations between them.
//!
//! The result is an ordinary graph with the same results, so engines, agents and the planner need no notion of shards. A
//! shard whose operand is exactly one other shard's result reads that; one that needs more (the halo of a sliding window)
//! reads the rest as a slice of the neighbour's result. Where shards are overlapping tiles, they have computed halos themselves.
//! What depends on parameters alone is copied for each shard that reads it. A state that shards read and compute in parts becomes
//! a state for each of them.

use std::collections::{BTreeMap, HashMap};

use edgecut_graph::{Graph, Operator, OperatorId, StatePair, TensorId};

pub use crate::passes::{
    rewriter::{Role, Sharded},
    shard_calls::ShardCalls,
    sharding::Sharding,
};
use crate::{
    passes::{
        axes::{axes, axis},
        rewriter::{GraphRewriter, ShardLayout, ShardTensor, map_args},
        shard::{Shard, SplitError},
        split_state::{SplitState, split_states},
    },
    split::{Carried, Join, ShardedAxis, SplitAxis},
};

/// Splits the operators in `shardings`; the others stay whole, but for those that depend on parameters alone: each of their
/// readers has a copy. `states` are those of `graph`.
///
/// # Errors
/// If an operator cannot be split as specified, or `states` are no states of `graph`.
pub fn shard_graph(
    graph: &Graph,
    states: &[StatePair],
    shardings: &BTreeMap<OperatorId, Sharding>,
) -> Result<Sharded, SplitError> {
    let mut found: BTreeMap<OperatorId, SplitAxis> = BTreeMap::new();
    for (id, sharding) in shardings {
        if (id.0 as usize) < graph.operators().len() {
            found.insert(*id, axis(graph, graph.operator(*id), sharding.axis)?);
        }
    }
    shard_graph_with_axes(graph, states, shardings, &|id, _| found.get(&id), &ShardCalls::default())
}

/// [`shard_graph`] with axes that the caller has computed: `axis_of` looks one up by operator and number. `calls` are shards of `graph`
/// along these axes.
///
/// # Errors
/// As of [`shard_graph`].
pub fn shard_graph_with_axes<'a>(
    graph: &Graph,
    states: &[StatePair],
    shardings: &BTreeMap<OperatorId, Sharding>,
    axis_of: &dyn Fn(OperatorId, usize) -> Option<&'a SplitAxis>,
    calls: &ShardCalls,
) -> Result<Sharded, SplitError> {
    if shardings.is_empty() {
        let whole = |(operator, _)| Role::Compute(Shard { operator, index: 0 });
        let roles = graph.operators().map(whole).collect();
        return Ok(Sharded { graph: graph.clone(), roles, states: states.to_vec() });
    }
    let split = split_states(graph, &graph.states(states)?, shardings, axis_of);
    let layout = |state: &SplitState| (state.tensors.input, state.layout());
    let layouts: HashMap<TensorId, ShardLayout> = split.iter().map(layout).collect();
    let mut rewriter = GraphRewriter::new(graph, &layouts);
    rewriter.copy_constants();
    for (id, operator) in graph.operators() {
        if rewriter.is_copied_operator(id) {
            continue;
        }
        match shardings.get(&id) {
            Some(sharding) => {
                let axis = axis_of(id, sharding.axis).ok_or_else(|| SplitError::NoAxis {
                    op: operator.name.to_string(),
                    axis: sharding.axis,
                    axes: axes(graph, operator).len(),
                })?;
                rewriter.split(id, operator, (sharding, axis), calls)?;
            }
            None => rewriter.keep(id, operator)?,
        }
    }
    let is_split = |output: &TensorId| split.iter().any(|state| state.tensors.output == *output);
    for output in &graph.outputs {
        if is_split(output) {
            let shards = rewriter.shards[output.0 as usize].iter().map(|shard| shard.tensor);
            rewriter.out.graph.outputs.extend(shards);
            continue;
        }
        let new = rewriter.read(*output, None, Role::Output)?;
        rewriter.out.graph.outputs.push(new);
    }
    rewriter.out.states = rewriter.states(states, &split);
    Ok(rewriter.out)
}

impl GraphRewriter<'_> {
    fn split(
        &mut self,
        id: OperatorId,
        operator: &Operator,
        (sharding, axis): (&Sharding, &SplitAxis),
        calls: &ShardCalls,
    ) -> Result<(), SplitError> {
        if !sharding.fits(axis) {
            return Err(refused(operator.name.to_string(), axis, sharding));
        }
        self.homes.insert(id, sharding.homes.clone());
        if axis.join == Join::Replicated {
            return self.replicate(id, operator, sharding.ranges().len());
        }
        let ranges = sharding.ranges();
        let layouts = self.result_layouts(operator, axis, sharding);
        let carried = axis.carried.map(|carried| self.partial_sums(operator, carried, ranges.len())).transpose()?;
        for (index, range) in (0u32..).zip(&ranges) {
            let shard = Shard { operator: id, index };
            let partial = carried.as_ref().and_then(|(tensor, sums)| Some((*tensor, *sums.get(index as usize)?)));
            if let Some((_, sum)) = partial
                && index > 0
                && axis.carried.is_some_and(|carried| carried.is_offset)
            {
                operator.outputs.iter().for_each(|output| self.shards[output.0 as usize].push(sum));
                continue;
            }
            let key = (id, sharding.axis, range.clone(), sharding.packed.clone());
            let call = calls.get(key, || match &sharding.packed {
                None => axis.shard(self.original, operator, range),
                Some(packed) => axis.shard_of_units(self.original, operator, range, packed),
            })?;
            self.own = Some(shard);
            let mut copy = operator.clone();
            copy.args = map_args(operator, &call.operands, |tensor, need| match partial {
                Some((of, sum)) if of == tensor => Ok(sum.tensor),
                _ => self.read(tensor, need, Role::Prepare(shard)),
            })?;
            let types = call.apply(&mut copy);
            let outputs = self.add(copy, &types, Role::Compute(shard));
            for ((old, new), layout) in operator.outputs.iter().zip(outputs).zip(&layouts) {
                let range = match layout {
                    ShardLayout::Concat { ranges, .. } => ranges.get(index as usize).unwrap_or(range),
                    ShardLayout::Whole | ShardLayout::Partial => range,
                };
                let name = format!("{}[{}..{}]", self.original.tensor(*old).name, range.start, range.end);
                self.out.graph.tensor_mut(new).name = name.into();
                self.shards[old.0 as usize].push(ShardTensor { tensor: new, producer: Some(shard) });
            }
        }
        self.own = None;
        for (output, layout) in operator.outputs.iter().zip(layouts) {
            // Unlike devices may decide an integer differently: all readers have that of the first shard.
            if layout == ShardLayout::Whole {
                self.shards[output.0 as usize].truncate(1);
            }
            self.layouts[output.0 as usize] = layout;
        }
        Ok(())
    }

    /// Writes `replicas` copies of an operator, each a shard. The results of the first one have the original names.
    fn replicate(&mut self, id: OperatorId, operator: &Operator, replicas: usize) -> Result<(), SplitError> {
        for index in 0..replicas {
            let shard = Shard { operator: id, index: index as u32 };
            self.own = Some(shard);
            self.copy(operator, shard)?;
        }
        self.own = None;
        Ok(())
    }

    /// How the results of `operator` are represented when `axis` is divided as in `sharding`.
    fn result_layouts(&self, operator: &Operator, axis: &SplitAxis, sharding: &Sharding) -> Vec<ShardLayout> {
        let ranges = sharding.ranges();
        let layout = |(index, output): (usize, &TensorId)| match &axis.join {
            Join::Sum => ShardLayout::Partial,
            Join::Replicated => ShardLayout::Whole,
            Join::Axis(axes) => match axes.get(index).copied().flatten() {
                Some(along) => {
                    let shape = &self.original.tensor(*output).ty.shape;
                    let size = shape.get(along).and_then(|dim| dim.get()).unwrap_or(axis.size);
                    let ranges = ranges.iter().map(|range| axis.output_range(size, range)).collect();
                    ShardLayout::Concat { side: ShardedAxis { axis: along, packed: sharding.packed.clone() }, ranges }
                }
                None => ShardLayout::Whole,
            },
        };
        operator.outputs.iter().enumerate().map(layout).collect()
    }

    /// `states` of the original graph as those of the rewritten one.
    fn states(&self, states: &[StatePair], split: &[SplitState]) -> Vec<StatePair> {
        let named = |id: TensorId| self.out.graph.tensor(id).name.clone();
        let of_shards = |state: &SplitState| {
            let [inputs, outputs] = [state.tensors.input, state.tensors.output].map(|id| &self.shards[id.0 as usize]);
            let pair = |(input, output): (&ShardTensor, &ShardTensor)| StatePair {
                input: named(input.tensor),
                output: named(output.tensor),
            };
            inputs.iter().zip(outputs).map(pair).collect::<Vec<_>>()
        };
        let of = |pair: &StatePair| {
            let split = split.iter().find(|state| self.original.tensor(state.tensors.input).name == pair.input);
            split.map_or_else(|| vec![pair.clone()], of_shards)
        };
        states.iter().flat_map(of).collect()
    }

    /// The operand whose partial sums `operator` passes on, and the partial sum of each of its `shards`.
    fn partial_sums(
        &self,
        operator: &Operator,
        carried: Carried,
        shards: usize,
    ) -> Result<(TensorId, Vec<ShardTensor>), SplitError> {
        let partial = |tensor: &TensorId| {
            let sums = &self.shards[tensor.0 as usize];
            self.layouts[tensor.0 as usize] == ShardLayout::Partial && sums.len() == shards
        };
        let Carried { operand, .. } = carried;
        let found = operator.operands().nth(operand).filter(partial);
        let refused = || SplitError::Carried { op: operator.name.to_string(), shards, operand };
        found.map(|tensor| (tensor, self.shards[tensor.0 as usize].clone())).ok_or_else(refused)
    }
}

/// Why `op` is not split along `axis` as in `sharding`, which does not fit it.
fn refused(op: String, axis: &SplitAxis, sharding: &Sharding) -> SplitError {
    let Sharding { cuts, tiles, packed, .. } = sharding.clone();
    let (grain, size) = (axis.grain, axis.size);
    if axis.join == Join::Replicated {
        return SplitError::Replicas { op, cuts, most: axis.size };
    }
    match (Sharding::disjoint(sharding.axis, cuts.clone()).fits(axis), packed) {
        (false, _) => SplitError::Cuts { op, cuts, grain, size },
        (true, Some(packed)) => SplitError::Units { op, cuts, unit: packed.unit() },
        (true, None) => SplitError::Tiles { op, cuts, tiles, grain },
    }
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{DType, Origin, TensorType};

    use super::*;
    use crate::split::PackedAxis;

    #[test]
    fn shards_read_the_replica_of_their_number() {
        let ty = TensorType::of(DType::F32, &[4]);
        let mut graph = Graph::new();
        let mut tensor = graph.add_tensor("x", ty.clone(), Origin::Input);
        for name in ["exp", "nn.relu", "negative"] {
            let id = graph.add_operator(Operator::new(name, [tensor]), std::slice::from_ref(&ty));
            tensor = graph.operator(id).outputs[0];
            graph.tensor_mut(tensor).name = name.into();
        }
        graph.outputs = vec![tensor];
        let id = OperatorId;
        let replicas = Sharding::replicated(axes(&graph, graph.operator(id(1))).len(), 2);
        let halves = || Sharding::disjoint(0, vec![0, 2, 4]);
        let cuts = BTreeMap::from([(id(0), halves()), (id(1), replicas.clone()), (id(2), halves())]);
        let made = shard_graph(&graph, &[], &cuts).unwrap();
        let of = |name: &'static str| made.graph.operators().filter(move |(_, operator)| operator.name == name);
        let names: Vec<&str> = of("nn.relu").map(|(_, op)| made.graph.tensor(op.outputs[0]).name.as_str()).collect();
        assert_eq!(names, ["nn.relu", "nn.relu[replica 2]"]);
        let joins = of("concatenate").filter(|(id, _)| matches!(made.roles[id.0 as usize], Role::Prepare(_)));
        assert_eq!(joins.count(), 2, "each replica joins what it reads");
        let sliced: Vec<TensorId> = of("strided_slice").flat_map(|(_, op)| op.operands().collect::<Vec<_>>()).collect();
        for (_, replica) in of("nn.relu") {
            assert_eq!(sliced.iter().filter(|of| **of == replica.outputs[0]).count(), 1, "{sliced:?}");
        }
        // Four shards on two devices read the replica of their device, whatever its number.
        let on = |homes: &[u32], sharding: Sharding| Sharding { homes: homes.to_vec(), ..sharding };
        for (homes, [first, second]) in [([0, 1], ["", "[replica 2]"]), ([1, 0], ["[replica 2]", ""])] {
            let quarters = on(&[0, 0, 1, 1], Sharding::disjoint(0, (0..5).collect()));
            let cuts = BTreeMap::from([(id(0), halves()), (id(1), on(&homes, replicas.clone())), (id(2), quarters)]);
            let made = shard_graph(&graph, &[], &cuts).unwrap();
            let served = made.graph.operators().zip(&made.roles).filter_map(|((_, operator), role)| match role {
                Role::Serve(shard) if shard.operator == id(1) => {
                    Some(made.graph.tensor(operator.outputs[0]).name.as_str())
                }
                _ => None,
            });
            let expected = [(first, 0), (first, 1), (second, 2), (second, 3)];
            let expected = expected.map(|(replica, at)| format!("nn.relu{replica}[0:{at}..{}]", at + 1));
            assert_eq!(served.collect::<Vec<_>>(), expected, "{homes:?}");
        }
        // What is read whole is read of the first one.
        let alone = shard_graph(&graph, &[], &BTreeMap::from([(id(1), replicas.clone())])).unwrap();
        let last = alone.graph.operators().last().unwrap().1;
        assert_eq!(alone.graph.tensor(last.operands().next().unwrap()).name, "nn.relu");
        for cuts in [vec![], vec![0], vec![0, 1], vec![0, 2, 4], vec![1, 2, 3], (0..66).collect()] {
            let wrong = Sharding { cuts: cuts.clone(), ..replicas.clone() };
            let found = shard_graph(&graph, &[], &BTreeMap::from([(id(1), wrong)]));
            assert!(matches!(found, Err(SplitError::Replicas { .. })), "{cuts:?}: {found:?}");
        }
        let beyond = Sharding { axis: replicas.axis + 1, ..replicas };
        let found = shard_graph(&graph, &[], &BTreeMap::from([(id(1), beyond)]));
        assert!(matches!(found, Err(SplitError::NoAxis { .. })), "{found:?}");
    }

    #[test]
    fn packed_shards_are_read_and_concatenated_tensor_by_tensor() {
        let ty = TensorType::of(DType::F32, &[12]);
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let b = graph.add_tensor("b", ty.clone(), Origin::Parameter);
        let add = graph.add_operator(Operator::new("add", [x, b]), std::slice::from_ref(&ty));
        let sum = graph.operator(add).outputs[0];
        let relu = graph.add_operator(Operator::new("nn.relu", [sum]), &[ty]);
        graph.outputs = graph.operator(relu).outputs.clone();
        let of_widths = |widths: &[u64]| PackedAxis::new(widths);
        let by_unit = |packed| Sharding { packed, ..Sharding::disjoint(0, vec![0, 4, 12]) };
        let names = |of: [Option<PackedAxis>; 2]| {
            let made = shard_graph(&graph, &[], &[add, relu].into_iter().zip(of.map(by_unit)).collect()).unwrap();
            let name = |(_, operator): (OperatorId, &Operator)| operator.name.to_string();
            let count = |wanted: &str| made.graph.operators().map(name).filter(|name| name == wanted).count();
            [count("strided_slice"), count("concatenate")]
        };
        // Each of the two shards slices both operands, in three parts; the result has three parts of each.
        let packed = || of_widths(&[2, 1, 1]);
        assert_eq!(names([packed(), packed()]), [12 + 6, 4 + 1]);
        assert_eq!(names([None, None]), [4, 1]);
        // A shard of the second operator needs what both shards of the first one have.
        let [slices, joins] = names([packed(), None]);
        assert!(slices > 12 && joins > 4, "{slices} slices, {joins} joins");
        // Columns of the data are not those of fewer indices.
        let mut graph_of_gather = Graph::new();
        let data = graph_of_gather.add_tensor("d", TensorType::of(DType::F32, &[2, 16]), Origin::Input);
        let indices = graph_of_gather.add_tensor("i", TensorType::of(DType::I64, &[2, 8]), Origin::Input);
        let attrs = [("axis".into(), edgecut_graph::Attr::Int(0))].into_iter().collect();
        let gather = Operator::new("gather", [data, indices]).with_attrs(attrs);
        let gather = graph_of_gather.add_operator(gather, &[TensorType::of(DType::F32, &[2, 8])]);
        graph_of_gather.outputs = graph_of_gather.operator(gather).outputs.clone();
        let number = axes(&graph_of_gather, graph_of_gather.operator(gather)).iter().position(|axis| axis.size == 8);
        let columns = Sharding { packed: packed(), ..Sharding::disjoint(number.unwrap(), vec![0, 4, 8]) };
        let found = shard_graph(&graph_of_gather, &[], &BTreeMap::from([(gather, columns)]));
        assert!(matches!(found, Err(SplitError::Units { .. })), "{found:?}");
        for refused in [of_widths(&[3, 2]), of_widths(&[5])] {
            let cuts = BTreeMap::from([(relu, by_unit(refused))]);
            assert!(matches!(shard_graph(&graph, &[], &cuts), Err(SplitError::Units { .. })));
        }
    }
}
