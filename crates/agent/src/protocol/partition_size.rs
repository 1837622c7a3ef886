//! What a partition takes at least, from its stages alone: its parameters, and the largest tensors of a run.

use std::collections::BTreeSet;

use edgecut_graph::{Graph, Origin, TensorId, constant_operators, units::Bytes};
use smol_str::SmolStr;

use super::setup::{Partition, Stage};

/// The operator by which shards read their part of a weight.
const SLICE: &str = "strided_slice";

/// How much larger a tensor may get by a conversion: of a byte to a float64.
const MAX_CONVERSION: u64 = 8;

impl Partition {
    /// Size of the parameters and constants of all stages as in the model, each counted once, and of what is computed of
    /// them that is many times as large. A parameter of which shards read only slices counts as those slices.
    pub fn parameter_bytes(&self) -> Bytes {
        self.parameter_bytes_of(&self.stages.iter().collect::<Vec<_>>())
    }

    /// The same of some of its `stages`.
    pub(super) fn parameter_bytes_of(&self, stages: &[&Stage]) -> Bytes {
        let mut seen = BTreeSet::new();
        let size = |graph: &Graph, id: TensorId| graph.tensor(id).ty.bytes().unwrap_or_default();
        let mut total = Bytes::ZERO;
        for graph in stages.iter().map(|stage| &stage.graph) {
            let readers = graph.consumers();
            for id in graph.parameters() {
                let readers = readers[id.0 as usize].iter().map(|reader| graph.operator(*reader));
                let whole = readers.clone().any(|reader| reader.name != SLICE) || graph.outputs.contains(&id);
                if !whole && readers.len() > 0 {
                    total += readers.flat_map(|slice| &slice.outputs).map(|slice| size(graph, *slice)).sum();
                } else if matches!(graph.tensor(id).origin, Origin::Constant(_)) || seen.insert(&graph.tensor(id).name)
                {
                    total += size(graph, id);
                }
            }
            total += expanded(graph);
        }
        total
    }

    /// The largest tensor that exists while the partition is loaded, by name: a parameter is generated whole, also where
    /// only slices of it are kept, and what depends on parameters alone is computed.
    pub(crate) fn largest_loaded(&self) -> Option<(SmolStr, Bytes)> {
        let graphs = self.stages.iter().map(|stage| &stage.graph);
        let sized = graphs.flat_map(|graph| {
            let constant = constant_operators(graph);
            let computed = graph.operators().filter(move |(id, _)| constant[id.0 as usize]);
            let results = computed.flat_map(|(_, operator)| operator.outputs.iter().copied());
            let tensors = graph.parameters().chain(results).map(|id| graph.tensor(id));
            tensors.map(|tensor| (tensor.name.clone(), tensor.ty.bytes().unwrap_or_default()))
        });
        sized.max_by_key(|(_, bytes)| *bytes)
    }

    /// Lower bound on the memory that a run needs beyond the parameters: the largest operand or result, also within a stage.
    pub(crate) fn min_activations(&self) -> Bytes {
        let largest = |graph: &Graph| {
            // What depends on parameters alone is computed while they are loaded, and counts as one of them.
            let constant = constant_operators(graph);
            let computed = graph.operators().map(|(id, _)| id).filter(|id| !constant[id.0 as usize]);
            let ends = graph.inputs().chain(graph.outputs.iter().copied());
            let ends = ends.filter_map(|id| graph.tensor(id).ty.bytes()).max();
            graph.largest_result(computed).max(ends.unwrap_or_default())
        };
        self.stages.iter().map(|stage| largest(&stage.graph)).max().unwrap_or_default()
    }
}

/// Results of operators on parameters alone that are larger than a conversion of their operands: of `zeros`, or copies of
/// a scalar.
fn expanded(graph: &Graph) -> Bytes {
    let size = |id: TensorId| graph.tensor(id).ty.bytes().unwrap_or_default();
    let constant = constant_operators(graph);
    let computed = graph.operators().filter(|(id, _)| constant[id.0 as usize]).map(|(_, operator)| operator);
    let grown = computed.map(|operator| {
        let operands: Bytes = operator.operands().map(size).sum();
        let results: Bytes = operator.outputs.iter().map(|id| size(*id)).sum();
        if results.0 > operands.0.saturating_mul(MAX_CONVERSION) { results } else { Bytes::ZERO }
    });
    grown.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::setup::{Stage, tests::setup};
    use edgecut_graph::{DType, Operator, TensorType};

    #[test]
    fn parameters_count_once_by_name_and_shards_count_their_slices() {
        let ty = |size| TensorType::of(DType::U8, &[size]);
        let sliced = |reader: &str| {
            let mut graph = Graph::new();
            let weight = graph.add_tensor("w", ty(100), Origin::Parameter);
            let read = graph.add_operator(Operator::new(reader, [weight]), &[ty(10)]);
            graph.outputs = graph.operator(read).outputs.to_vec();
            graph
        };
        let partition = |graphs: [Graph; 2]| {
            let mut partition = setup().partitions.remove(0);
            let stage = partition.stages.remove(0);
            partition.stages = graphs.map(|graph| Stage { graph, ..stage.clone() }).to_vec();
            partition
        };
        assert_eq!(partition([sliced("nn.relu"), sliced("nn.relu")]).parameter_bytes(), Bytes(100));
        assert_eq!(partition([sliced(SLICE), sliced(SLICE)]).parameter_bytes(), Bytes(20));
        assert_eq!(partition([sliced(SLICE), sliced("nn.relu")]).parameter_bytes(), Bytes(110));
        assert_eq!(setup().partitions[0].min_activations(), Bytes(32));
        let largest = partition([sliced(SLICE), sliced(SLICE)]).largest_loaded();
        assert_eq!(largest, Some(("w".into(), Bytes(100))), "it is generated whole");
    }

    #[test]
    fn results_on_constants_count_where_they_are_many_times_their_operands() {
        let ty = |size| TensorType::of(DType::U8, &[size]);
        let mut graph = Graph::new();
        let weight = graph.add_tensor("w", ty(100), Origin::Parameter);
        graph.add_operator(Operator::new("zeros", [] as [TensorId; 0]), &[ty(1000)]);
        graph.add_operator(Operator::new("cast", [weight]), &[ty(800)]);
        let tiled = graph.add_operator(Operator::new("tile", [weight]), &[ty(2000)]);
        graph.outputs = graph.operator(tiled).outputs.to_vec();
        let mut partition = setup().partitions.remove(0);
        partition.stages[0].graph = graph;
        assert_eq!(partition.parameter_bytes(), Bytes(3100));
        assert_eq!(partition.largest_loaded().map(|(_, bytes)| bytes), Some(Bytes(2000)));
    }
}
