//! Evicts an operator's data from the caches between two isolated runs.
//!
//! An operator that runs in a loop finds its weights in the first-level cache. In a model, the other operators have
//! evicted them since its last run. So before each sample a buffer as large as the rest of the model's working set is
//! read, and an isolated operator starts with the cache contents of its place in the model.

use std::collections::HashMap;

use edgecut_graph::{Graph, Origin, TensorId, units::Bytes};

/// Distance between reads.
const CACHE_LINE: usize = 64;

/// A buffer of the size of a model's working set, up to 128 MiB: its parameters and the peak of its live tensors. Freed
/// memory is reused and evicts nothing more.
pub struct CacheFlush {
    buffer: Vec<u8>,
}

impl CacheFlush {
    /// Largest buffer: more than the private caches of any core, and read in a few milliseconds.
    pub const MAX: Bytes = Bytes(128 << 20);

    pub(super) fn of(graph: &Graph) -> CacheFlush {
        CacheFlush::new(CacheFlush::working_set(graph))
    }

    /// Size of the working set of `graph`, up to 128 MiB.
    pub fn working_set(graph: &Graph) -> Bytes {
        let size = |id: TensorId| graph.tensor(id).ty.bytes().map_or(0, |bytes| bytes.0);
        let parameters = graph.parameters().map(size).fold(0, u64::saturating_add);
        Bytes(parameters.saturating_add(peak_live(graph, size)).min(CacheFlush::MAX.0))
    }

    /// A buffer of `bytes`, up to 128 MiB.
    pub fn new(bytes: Bytes) -> CacheFlush {
        // Zeroed memory would be one physical page.
        CacheFlush { buffer: vec![1; bytes.0.min(CacheFlush::MAX.0) as usize] }
    }

    /// Reads the whole buffer, one word in each cache line.
    pub fn flush(&self) {
        let sum: u64 = self.buffer.iter().step_by(CACHE_LINE).map(|b| u64::from(*b)).sum();
        std::hint::black_box(sum);
    }
}

/// Peak size of live inputs and results when the operators run in program order.
fn peak_live(graph: &Graph, size: impl Fn(TensorId) -> u64) -> u64 {
    let mut readers_left: HashMap<TensorId, usize> = HashMap::new();
    for (_, operator) in graph.operators() {
        operator.operands().for_each(|t| *readers_left.entry(t).or_default() += 1);
    }
    graph.outputs.iter().for_each(|t| *readers_left.entry(*t).or_default() += 1);
    let mut alive: u64 = graph.inputs().map(&size).fold(0, u64::saturating_add);
    let mut peak = alive;
    for (_, operator) in graph.operators() {
        alive = operator.outputs.iter().map(|t| size(*t)).fold(alive, u64::saturating_add);
        peak = peak.max(alive);
        for operand in operator.operands() {
            let is_kept = matches!(graph.tensor(operand).origin, Origin::Parameter | Origin::Constant(_));
            if let (Some(left), false) = (readers_left.get_mut(&operand), is_kept) {
                *left -= 1;
                alive = if *left == 0 { alive.saturating_sub(size(operand)) } else { alive };
            }
        }
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, TensorType};

    #[test]
    fn freed_memory_counts_once() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::U8, &[100]);
        let mut at = graph.add_tensor("x", ty.clone(), Origin::Input);
        let weight = graph.add_tensor("w", ty.clone(), Origin::Parameter);
        for _ in 0..5 {
            let operator = Operator::new("add", [at, weight]);
            let id = graph.add_operator(operator, std::slice::from_ref(&ty));
            at = graph.operator(id).outputs[0];
        }
        graph.outputs.push(at);
        assert_eq!(CacheFlush::of(&graph).buffer.len(), 300, "the weight, an operand and a result");
    }
}
