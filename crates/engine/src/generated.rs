//! Generated tensor contents, seeded by name and type; inputs that are indices and lengths lie within their valid ranges.

use std::collections::HashMap;

use edgecut_graph::{Graph, TensorData, TensorId};
use edgecut_ops::passes::index_ranges::{ValueRange, index_ranges};
use edgecut_values::{seeded, seeded_within};

use crate::EngineError;

/// Contents for the inputs and parameters of a graph.
pub struct GeneratedContents<'g> {
    graph: &'g Graph,
    ranges: HashMap<TensorId, ValueRange>,
}

impl<'g> GeneratedContents<'g> {
    /// For `graph`.
    pub fn of(graph: &'g Graph) -> GeneratedContents<'g> {
        GeneratedContents { graph, ranges: index_ranges(graph) }
    }

    /// The content of `id`.
    ///
    /// # Errors
    /// If it has none, such as a tensor of unknown size.
    pub fn get(&self, id: TensorId) -> Result<TensorData, EngineError> {
        let tensor = self.graph.tensor(id);
        let content = match self.ranges.get(&id) {
            Some(range) => seeded_within(&tensor.name, &tensor.ty, *range),
            None => seeded(&tensor.name, &tensor.ty),
        };
        content.map_err(|e| EngineError::Tensor { name: tensor.name.to_string(), what: e.to_string() })
    }
}

/// The contents of all inputs of `graph`, in order.
///
/// # Errors
/// If one has no content, such as one of unknown size.
pub(crate) fn generated_inputs(graph: &Graph) -> Result<Vec<TensorData>, EngineError> {
    let contents = GeneratedContents::of(graph);
    graph.inputs().map(|id| contents.get(id)).collect()
}
