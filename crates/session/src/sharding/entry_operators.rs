//! Maps entries of an ONNX file (`NodeProto`) to the operators of the graph that was imported from it.

use std::collections::HashMap;

use edgecut_graph::{Graph, OperatorId, Origin};

/// The names of an entry.
pub(crate) struct NamedEntry<'a> {
    /// Empty if it has none.
    pub name: &'a str,
    /// The values that it computes.
    pub outputs: &'a [String],
}

/// The operators of `graph` by entry: those of its name, or else those that compute its results. An entry that was folded has none.
pub(crate) fn entry_operators(graph: &Graph, entries: &[NamedEntry<'_>]) -> Vec<Vec<OperatorId>> {
    let mut by_layer: HashMap<&str, Vec<OperatorId>> = HashMap::new();
    for (id, operator) in graph.operators() {
        if let Some(layer) = &operator.layer {
            by_layer.entry(layer).or_default().push(id);
        }
    }
    let mut by_tensor: HashMap<&str, OperatorId> = HashMap::new();
    for (_, tensor) in graph.tensors() {
        if let Origin::Operator { operator, .. } = tensor.origin {
            by_tensor.insert(&tensor.name, operator);
        }
    }
    let operators = |entry: &NamedEntry<'_>| {
        let own = by_layer.get(entry.name).cloned().unwrap_or_default();
        let results = || entry.outputs.iter().filter_map(|name| by_tensor.get(name.as_str()).copied()).collect();
        if own.is_empty() { results() } else { own }
    };
    entries.iter().map(operators).collect()
}
