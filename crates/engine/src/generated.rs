//! Generated contents of a graph's inputs: from their names, indices and lengths within their ranges.

use edgecut_graph::{Graph, TensorData, TensorId};
use edgecut_ops::passes::index_ranges::index_ranges;
use edgecut_values::{SeedError, seeded, seeded_within};

/// The contents of all inputs of `graph`, in order.
///
/// # Errors
/// If one has no content, such as one of unknown size.
pub(crate) fn generated_inputs(graph: &Graph) -> Result<Vec<TensorData>, SeedError> {
    let ranges = index_ranges(graph);
    let content = |id: TensorId| {
        let tensor = graph.tensor(id);
        match ranges.get(&id) {
            Some(range) => seeded_within(&tensor.name, &tensor.ty, *range),
            None => seeded(&tensor.name, &tensor.ty),
        }
    };
    graph.inputs().map(content).collect()
}
