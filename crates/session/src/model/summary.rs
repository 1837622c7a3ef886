//! Summary of a model.

use edgecut_graph::Graph;
use edgecut_ops::passes::summary::summary;
pub use edgecut_ops::passes::summary::{Summary, Tensor};

/// The summary of a graph. Operators without a kernel are left to ONNX Runtime if they were read from an ONNX file.
pub fn summarise(graph: &Graph) -> Summary {
    summary(graph, |id| graph.operator(id).is_kept_as_read() && edgecut_onnx::expressible(graph, id).is_ok())
}
