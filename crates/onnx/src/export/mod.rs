//! Writing ONNX: a graph, or a part of one, as a model that ONNX Runtime executes.
//!
//! One ONNX operator for one operator of the graph where ONNX has it, a composition with the same results where it has
//! none. Values keep the graph's names. Every operator is written for the element types that ONNX Runtime's CPU kernels
//! accept; others are computed in a wider type.
//!
//! | module | contents |
//! |---|---|
//! | `mod` | [`export`], [`expressible`] |
//! | `exported` | [`Exported`]: a written model; [`ExportOptions`] |
//! | `written_node` | [`WrittenNode`]: the nodes of a written model, and their metadata |
//! | `write_graph` | operators in order, values by name |
//! | `signature` | inputs and outputs |
//! | `bias` | additions that become the bias of the product before them |
//! | `builder` | the model under construction: nodes, initializers, names |
//! | `compose` | operators that many families use, folded where their operands are constants |
//! | `kernels` | element types of ONNX Runtime's kernels |
//! | `scope` | one operator being written: operands, types, attributes |
//! | `write` | how an operator is written |
//! | `layout` | layout strings of convolutions and pooling |
//! | `opaque_node` | operators that were kept as they were in an ONNX file |
//! | `decomposed` | composite operators that are written as their decompositions |
//! | `file` | bytes of a model; weights in a file of their own |
//! | `families` | one file an operator family; `families::FAMILIES` is the registry |
//!
//! Knows `graph` and `ops`; does not know where contents come from, or who runs the model.

mod bias;
mod builder;
mod compose;
mod decomposed;
mod error;
mod exported;
mod families;
mod file;
mod kernels;
mod layout;
mod opaque_node;
mod scope;
mod signature;
mod write;
mod write_graph;
mod written_node;

use edgecut_graph::{Graph, OperatorId};
use edgecut_ops::Unsupported;

pub(crate) use self::write_graph::{ir_version, type_proto};

pub use self::{
    error::ExportError,
    exported::{ExportOptions, Exported, OPSET, Weight, WeightContent},
    written_node::{NodeValue, WrittenNode},
};

/// Writes `graph` as an ONNX model.
///
/// # Errors
/// If an operator cannot be expressed, a type has no equivalent, or a content is not available.
pub fn export(graph: &Graph, options: &ExportOptions<'_>) -> Result<Exported, ExportError> {
    decomposed::write_decomposed(graph, options)
}

/// Whether [`export`] can express an operator, with its attributes and types.
///
/// Contents of parameters count as unknown, which some compositions need to know (scales of quantised operators): where
/// they are constants of the graph, they are known.
///
/// # Errors
/// The reason why not.
pub fn expressible(graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
    decomposed::try_decomposed(graph, operator)
        .map_err(|reason| Unsupported { op: graph.operator(operator).name.clone(), reason })
}
