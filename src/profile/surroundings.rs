//! What else a model touches between two runs of the same operator.
//!
//! An operator that runs alone in a loop finds its weights in the nearest cache. In a model they have been
//! displaced by everything that ran since. Before each sample as many bytes are read as the rest of the
//! model has, so that an operator measured alone finds the caches as it does in its place.

use std::collections::HashMap;

use crate::{
    graph::{Graph, Origin, TensorId},
    units::Bytes,
};

/// More than the private caches of any core have, and as much as is read in a few milliseconds.
const MOST: u64 = 128 << 20;
/// Distance between reads: a cache line.
const LINE: usize = 64;

/// A buffer as large as a model's parameters and the most of its tensors that are alive at one time, up to [`MOST`]:
/// memory that is freed is used again, and what is used again does not displace more.
pub struct Surroundings {
    buffer: Vec<u8>,
}

impl Surroundings {
    pub(super) fn of(graph: &Graph) -> Surroundings {
        Surroundings::new(Surroundings::bytes(graph))
    }

    /// What `graph` touches when it runs, as far as it matters.
    pub fn bytes(graph: &Graph) -> Bytes {
        let size = |id: TensorId| graph.tensor(id).ty.bytes().map_or(0, |bytes| bytes.0);
        let parameters = graph.parameters().map(size).fold(0, u64::saturating_add);
        Bytes(parameters.saturating_add(most_alive(graph, size)).min(MOST))
    }

    /// So much, up to [`MOST`].
    pub(super) fn new(bytes: Bytes) -> Surroundings {
        // Not zeroes: those would all be one physical page.
        Surroundings { buffer: vec![1; bytes.0.min(MOST) as usize] }
    }

    /// Displaces from the caches what is not used now.
    pub(super) fn visit(&self) {
        let sum: u64 = self.buffer.iter().step_by(LINE).map(|b| u64::from(*b)).sum();
        std::hint::black_box(sum);
    }
}

/// Most bytes of inputs and results that are alive at one time when the operators run in their order.
fn most_alive(graph: &Graph, size: impl Fn(TensorId) -> u64) -> u64 {
    let mut readers_left: HashMap<TensorId, usize> = HashMap::new();
    for (_, operator) in graph.operators() {
        operator.operands().for_each(|t| *readers_left.entry(t).or_default() += 1);
    }
    graph.outputs.iter().for_each(|t| *readers_left.entry(*t).or_default() += 1);
    let mut alive: u64 = graph.inputs().map(&size).fold(0, u64::saturating_add);
    let mut most = alive;
    for (_, operator) in graph.operators() {
        alive = operator.outputs.iter().map(|t| size(*t)).fold(alive, u64::saturating_add);
        most = most.max(alive);
        for operand in operator.operands() {
            let is_kept = matches!(graph.tensor(operand).origin, Origin::Parameter | Origin::Constant(_));
            if let (Some(left), false) = (readers_left.get_mut(&operand), is_kept) {
                *left -= 1;
                alive = if *left == 0 { alive.saturating_sub(size(operand)) } else { alive };
            }
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Arg, Attrs, DType, Operator, TensorType};

    #[test]
    fn what_is_freed_counts_once() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::U8, &[100]);
        let mut at = graph.add_tensor("x", ty.clone(), Origin::Input);
        let weight = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        for _ in 0..5 {
            let operator = Operator {
                name: "add".into(),
                attrs: Attrs::new(),
                args: vec![Arg::Tensor(at), Arg::Tensor(weight)],
                outputs: Vec::new(),
                tuple_result: false,
                label: None,
                place: None,
            };
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            at = graph.operator(id).outputs[0];
        }
        graph.outputs.push(at);
        assert_eq!(Surroundings::of(&graph).buffer.len(), 300, "the weight, an operand and a result");
    }
}
