//! States of a graph whose operators are split into shards: which ones are divided among the shards.
//!
//! A shard that reads and computes the same range of a state, as attention does with the heads of its caches, has that range as
//! a state of its own: no other shard needs it.

use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
};

use edgecut_graph::{Graph, OperatorId, StateTensors};

use crate::{
    passes::{
        rewriter::{ShardLayout, sliced},
        shard::Slice,
        sharding::Sharding,
    },
    split::{AccessMap, Join, SplitAxis},
};

/// A state of which each shard of an operator has a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitState {
    pub tensors: StateTensors,
    /// The axis of the state.
    pub axis: usize,
    /// By shard.
    pub ranges: Vec<Range<u64>>,
}

impl SplitState {
    /// How shards represent the state.
    pub fn layout(&self) -> ShardLayout {
        ShardLayout::Concat { side: self.axis.into(), ranges: self.ranges.clone() }
    }
}

/// Those of `states` that are divided among the shards of the only operator that reads and computes them. `axis_of` gives the split
/// axis of an operator by number.
pub(crate) fn split_states<'a>(
    graph: &Graph,
    states: &[StateTensors],
    shardings: &BTreeMap<OperatorId, Sharding>,
    axis_of: &dyn Fn(OperatorId, usize) -> Option<&'a SplitAxis>,
) -> Vec<SplitState> {
    if states.is_empty() {
        return Vec::new();
    }
    let consumers = graph.consumers();
    let names: HashSet<&str> = graph.tensors().map(|(_, tensor)| tensor.name.as_str()).collect();
    let of = |state: &StateTensors| {
        let id = graph.producer(state.output)?;
        if consumers[state.input.0 as usize][..] != [id] || graph.outputs.contains(&state.input) {
            return None;
        }
        let sharding = shardings.get(&id)?;
        let split = split_state(graph, *state, (id, sharding, axis_of(id, sharding.axis)?))?;
        let name = &graph.tensor(state.input).name;
        let is_taken = |slice: Slice| names.contains(sliced(name, &slice).as_str());
        let mut slices = split.ranges.iter().map(|range| Slice::new(split.axis, range.clone()));
        (!slices.any(is_taken)).then_some(split)
    };
    states.iter().filter_map(of).collect()
}

/// The state as the shards of `operator`, which computes it, have it.
fn split_state(
    graph: &Graph,
    state: StateTensors,
    (operator, sharding, split): (OperatorId, &Sharding, &SplitAxis),
) -> Option<SplitState> {
    let operator = graph.operator(operator);
    if !sharding.fits(split) || !sharding.tiles.is_empty() || sharding.packed.is_some() {
        return None;
    }
    let Join::Axis(outputs) = &split.join else { return None };
    let along = outputs.get(operator.outputs.iter().position(|output| *output == state.output)?).copied().flatten()?;
    let size = graph.tensor(state.output).ty.shape.get(along)?.get()?;
    let shards = sharding.ranges();
    let ranges: Vec<Range<u64>> = shards.iter().map(|range| split.output_range(size, range)).collect();
    let is_own = |access: &Option<AccessMap>| {
        let reads = |access: &AccessMap| shards.iter().map(|range| (access.map)(range)).eq(ranges.iter().cloned());
        access.as_ref().is_some_and(|access| access.packed.is_none() && access.axis == along && reads(access))
    };
    let mut accesses = operator.operands().zip(&split.operands).filter(|(operand, _)| *operand == state.input);
    let is_split = accesses.all(|(_, access)| is_own(access));
    is_split.then_some(SplitState { tensors: state, axis: along, ranges })
}

#[cfg(test)]
mod tests {
    use edgecut_graph::{DType, Operator, Origin, StatePair, TensorType};

    use super::*;
    use crate::passes::{
        shard::SplitError,
        shard_graph::{Role, shard_graph},
    };

    /// `next = h + x`, where `h` is a state; and `more`, if it has a name, of `h` and `x` too.
    fn graph(more: Option<&str>) -> (Graph, [StatePair; 1]) {
        let ty = TensorType::of(DType::F32, &[4]);
        let mut graph = Graph::new();
        let [h, x] = ["h", "x"].map(|name| graph.add_tensor(name, ty.clone(), Origin::Input));
        let names = ["add"].into_iter().chain(more);
        for name in names {
            let id = graph.add_operator(Operator::new(name, [h, x]), std::slice::from_ref(&ty));
            graph.outputs.extend(graph.operator(id).outputs.clone());
        }
        let next = graph.outputs[0];
        graph.tensor_mut(next).name = "next".into();
        (graph, ["h=next".parse().unwrap()])
    }

    #[test]
    fn each_shard_has_its_range_of_a_state() {
        let (graph, states) = graph(None);
        let cuts = BTreeMap::from([(OperatorId(0), Sharding::disjoint(0, vec![0, 1, 4]))]);
        let made = shard_graph(&graph, &states, &cuts).unwrap();
        let pairs: Vec<String> = made.states.iter().map(StatePair::to_string).collect();
        assert_eq!(pairs, ["h[0:0..1]=next[0..1]", "h[0:1..4]=next[1..4]"]);
        assert_eq!(made.graph.states(&made.states).map(|states| states.len()), Ok(2));
        let shapes = made.graph.inputs().map(|id| made.graph.tensor(id).ty.shape.fixed().unwrap()[0]);
        assert_eq!(shapes.collect::<Vec<_>>(), [1, 3, 4], "x is sliced, h is not");
        assert_eq!(made.graph.outputs.len(), 2);
        assert!(made.roles.iter().all(|role| *role != Role::Output), "nothing joins the state");
        let none = shard_graph(&graph, &states, &BTreeMap::new()).unwrap();
        assert_eq!((&none.graph, &none.states[..]), (&graph, &states[..]));
    }

    #[test]
    fn states_that_others_read_or_shards_do_not_match_stay_whole() {
        let whole = |(graph, states): (Graph, [StatePair; 1]), cuts: Sharding| {
            let made = shard_graph(&graph, &states, &BTreeMap::from([(OperatorId(0), cuts)])).unwrap();
            made.states == states
        };
        let cuts = || Sharding::disjoint(0, vec![0, 2, 4]);
        assert!(!whole(graph(None), cuts()));
        assert!(whole(graph(Some("multiply")), cuts()), "another reader");
        assert!(whole(graph(None), Sharding { tiles: vec![0..3, 2..4], ..cuts() }), "overlapping tiles");
        let (mut returned, states) = graph(None);
        let input = returned.inputs().next().unwrap();
        returned.outputs.push(input);
        assert!(whole((returned, states), cuts()), "an output that is the state before");
        let (mut taken, states) = graph(None);
        let ty = TensorType::of(DType::F32, &[2]);
        taken.add_tensor("h[0:0..2]", ty, Origin::Input);
        assert!(whole((taken, states), cuts()), "a name that a shard's state would have");
        let (graph, _) = graph(None);
        let descending = BTreeMap::from([(OperatorId(0), Sharding::disjoint(0, vec![0, 3, 1, 4]))]);
        assert!(matches!(shard_graph(&graph, &["h=next".parse().unwrap()], &descending), Err(SplitError::Cuts { .. })));
        let other = ["x=nothing".parse().unwrap()];
        let refused = shard_graph(&graph, &other, &BTreeMap::from([(OperatorId(0), cuts())])).unwrap_err();
        assert!(refused.to_string().contains("no output `nothing`"), "{refused}");
    }
}
