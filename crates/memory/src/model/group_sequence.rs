//! Operator groups in a fixed order, with the tensors that they exchange.

use std::collections::HashMap;

use edgecut_graph::{
    OperatorId, TensorId,
    units::{Bytes, Micros},
};
use edgecut_ops::passes::tile::SplitAxes;

/// Groups in an order, and the lifetimes of the tensors between them.
pub(super) struct GroupSequence<'a> {
    pub splits: &'a SplitAxes<'a>,
    pub groups: Vec<&'a [OperatorId]>,
    pub times: Vec<Micros>,
    pub values: HashMap<TensorId, LiveSpan>,
    /// For each position the tensors that its group writes for others.
    pub writes: Vec<Vec<TensorId>>,
    /// For each position the bytes live across its start.
    pub live_before: Vec<u64>,
}

/// The lifetime of a tensor over the positions of a [`GroupSequence`].
#[derive(Debug, Clone, Copy)]
pub(super) struct LiveSpan {
    pub bytes: Bytes,
    /// The position of its producer; `None` for an input.
    pub producer: Option<usize>,
    /// The last position that reads it; the number of groups for an output of the model.
    pub last: usize,
}

impl<'a> GroupSequence<'a> {
    /// The groups in their given order.
    pub fn new(splits: &'a SplitAxes<'a>, groups: &'a [Vec<OperatorId>], times: Vec<Micros>) -> GroupSequence<'a> {
        let graph = splits.graph;
        let bytes = |tensor: TensorId| graph.tensor(tensor).ty.bytes().unwrap_or_default();
        let mut values: HashMap<TensorId, LiveSpan> = HashMap::new();
        for input in graph.inputs() {
            values.insert(input, LiveSpan { bytes: bytes(input), producer: None, last: 0 });
        }
        let mut writes = vec![Vec::new(); groups.len()];
        for (position, group) in groups.iter().enumerate() {
            for operator in group.iter().map(|id| graph.operator(*id)) {
                for tensor in operator.operands() {
                    if let Some(value) = values.get_mut(&tensor) {
                        value.last = value.last.max(position);
                    }
                }
                for &output in &operator.outputs {
                    let span = LiveSpan { bytes: bytes(output), producer: Some(position), last: position };
                    values.insert(output, span);
                }
            }
        }
        for output in &graph.outputs {
            if let Some(value) = values.get_mut(output) {
                value.last = groups.len();
            }
        }
        // Tensors that only their own group reads are part of its workspace.
        values.retain(|_, value| value.producer.is_none_or(|producer| value.last > producer));
        let mut live_before = vec![0; groups.len() + 1];
        for (tensor, value) in &values {
            let from = value.producer.map_or(0, |producer| producer + 1);
            live_before[from..=value.last].iter_mut().for_each(|sum| *sum += value.bytes.0);
            if let Some(producer) = value.producer {
                writes[producer].push(*tensor);
            }
        }
        writes.iter_mut().for_each(|list| list.sort_unstable());
        let groups = groups.iter().map(|group| &group[..]).collect();
        GroupSequence { splits, groups, times, values, writes, live_before }
    }

    /// The bytes live while the whole group at a position runs.
    pub fn load(&self, position: usize) -> u64 {
        let written: u64 = self.writes[position].iter().map(|tensor| self.values[tensor].bytes.0).sum();
        self.live_before[position] + written
    }
}
