//! Writing ONNX: a graph, or a part of one, as a model that ONNX Runtime executes.
//!
//! One ONNX operator for one operator of the graph where ONNX has it, a composition with the same results where it has
//! none. Values keep the graph's names. Every operator is written for the element types that ONNX Runtime's CPU kernels
//! accept; others are computed in a wider type.
//!
//! | module | contents |
//! |---|---|
//! | `mod` | [`export`], [`expressible`], [`Exported`] |
//! | `write_graph` | operators in order, values by name, inputs and outputs |
//! | `bias` | additions that become the bias of the product before them |
//! | `builder` | the model under construction: nodes, initializers, names |
//! | `compose` | operators that many families use, folded where their operands are constants |
//! | `kernels` | element types of ONNX Runtime's kernels |
//! | `scope` | one operator being written: operands, types, attributes |
//! | `write` | how an operator is written |
//! | `layout` | layout strings of convolutions and pooling |
//! | `opaque_node` | operators that were kept as they were in an ONNX file |
//! | `file` | bytes of a model; weights in a file of their own |
//! | `families` | one file an operator family; `families::FAMILIES` is the registry |
//!
//! Knows `graph` and `ops`; does not know where contents come from, or who runs the model.

mod bias;
mod builder;
mod compose;
mod error;
mod families;
mod file;
mod kernels;
mod layout;
mod opaque_node;
mod scope;
mod write;
mod write_graph;

use std::collections::HashMap;

use edgecut_graph::{Graph, OperatorId, TensorData, TensorId};
use edgecut_ops::Unsupported;

pub use self::{error::ExportError, file::Weight};
use crate::proto::ModelProto;

/// The operator set of written models: the oldest with bitwise operators and reductions of scattered elements, and so
/// read by ONNX Runtime 1.14 and newer.
pub const OPSET: i64 = 18;

/// What a model is written with.
#[derive(Clone, Copy)]
pub struct ExportOptions<'a> {
    /// The content of a parameter (`Origin::Parameter`): with one it becomes an initializer, without one an input of the
    /// model. Constants are always initializers.
    pub content: &'a dyn Fn(TensorId) -> Result<Option<TensorData>, String>,
}

/// A model, and how it relates to the graph it was written from.
#[derive(Debug, Clone)]
pub struct Exported {
    pub(crate) model: ModelProto,
    /// The model's inputs in order: the graph's, then parameters without content that operators read.
    pub inputs: Vec<(String, TensorId)>,
    /// The names of the model's outputs, in the order of the graph's.
    pub outputs: Vec<String>,
    /// By name of an ONNX node or of a value that one computes, which runtimes name kernels after: the operators that it
    /// computes.
    pub operators: HashMap<String, Vec<OperatorId>>,
    /// Operators that needed more than one node, by how many.
    pub compositions: Vec<(OperatorId, usize)>,
}

/// Writes `graph` as an ONNX model.
///
/// # Errors
/// If an operator cannot be expressed, a type has no equivalent, or a content is not available.
pub fn export(graph: &Graph, options: &ExportOptions<'_>) -> Result<Exported, ExportError> {
    write_graph::write_graph(graph, options)
}

/// Whether [`export`] can express an operator, with its attributes and types.
///
/// Contents of parameters count as unknown, which some compositions need to know (scales of quantised operators): where
/// they are constants of the graph, they are known.
///
/// # Errors
/// The reason why not.
pub fn expressible(graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
    write_graph::try_operator(graph, operator)
        .map_err(|reason| Unsupported { op: graph.operator(operator).name.clone(), reason })
}
