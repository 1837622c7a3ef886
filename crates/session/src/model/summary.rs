//! What is in a model.

use edgecut_graph::Graph;
use edgecut_ops::passes::summary::{Summary, summary};

/// The summary of a graph. What has no kernel of ours ONNX Runtime computes, if an ONNX file has it.
pub fn summarise(graph: &Graph) -> Summary {
    summary(graph, |id| graph.operator(id).is_kept_as_read() && edgecut_onnx::expressible(graph, id).is_ok())
}
