//! States of a graph whose operators are split into shards: which ones are divided among the shards.
//!
//! A shard that reads and computes the same range of a state, as attention does with the heads of its caches, has that range as
//! a state of its own: no other shard needs it.

use std::{collections::BTreeMap, ops::Range};

use edgecut_graph::{Graph, OperatorId, StateTensors};

use crate::{
    passes::{axes::axis, rewriter::ShardLayout, sharding::Sharding},
    split::{AccessMap, Join},
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
        ShardLayout::Concat { axis: self.axis, ranges: self.ranges.clone() }
    }
}

/// Those of `states` that are divided among the shards of the only operator that reads and computes them.
pub(crate) fn split_states(
    graph: &Graph,
    states: &[StateTensors],
    shardings: &BTreeMap<OperatorId, Sharding>,
) -> Vec<SplitState> {
    if states.is_empty() {
        return Vec::new();
    }
    let consumers = graph.consumers();
    let of = |state: &StateTensors| {
        let readers = &consumers[state.input.0 as usize];
        let is_returned = graph.outputs.contains(&state.input);
        split_state(graph, *state, shardings).filter(|(operator, _)| !is_returned && readers[..] == [*operator])
    };
    states.iter().filter_map(of).map(|(_, state)| state).collect()
}

/// The state as the shards of the operator that computes it have it, and that operator.
fn split_state(
    graph: &Graph,
    state: StateTensors,
    shardings: &BTreeMap<OperatorId, Sharding>,
) -> Option<(OperatorId, SplitState)> {
    let id = graph.producer(state.output)?;
    let (operator, sharding) = (graph.operator(id), shardings.get(&id).filter(|sharding| sharding.tiles.is_empty())?);
    let split = axis(graph, operator, sharding.axis).ok()?;
    let Join::Axis(outputs) = &split.join else { return None };
    let along = outputs.get(operator.outputs.iter().position(|output| *output == state.output)?).copied().flatten()?;
    let size = graph.tensor(state.output).ty.shape.get(along)?.get()?;
    let shards = sharding.ranges();
    let ranges: Vec<Range<u64>> = shards.iter().map(|range| split.part_of(size, range)).collect();
    let is_own = |access: &Option<AccessMap>| {
        let reads = |access: &AccessMap| shards.iter().map(|range| (access.map)(range)).eq(ranges.iter().cloned());
        access.as_ref().is_some_and(|access| access.axis == along && reads(access))
    };
    let mut accesses = operator.operands().zip(&split.operands).filter(|(operand, _)| *operand == state.input);
    let is_split = accesses.all(|(_, access)| is_own(access));
    is_split.then_some((id, SplitState { tensors: state, axis: along, ranges }))
}
