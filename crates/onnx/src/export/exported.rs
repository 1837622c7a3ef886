//! A written model, and what it is written with.

use std::collections::HashMap;

use edgecut_graph::{OperatorId, TensorData, TensorId};

use crate::{interface::Interface, proto::ModelProto};

/// The operator set of written models: the oldest with bitwise operators and reductions of scattered elements, and so
/// read by ONNX Runtime 1.14 and newer.
pub const OPSET: i64 = 18;

/// What a model is written with.
#[derive(Clone, Copy)]
pub struct ExportOptions<'a> {
    /// The content of a parameter (`Origin::Parameter`): with one it becomes an initializer, without one an input of the
    /// model. Constants are always initializers.
    pub content: &'a WeightContent<'a>,
    /// The inputs, defaults and outputs that the model must have. Without it they are the graph's, and no output is an input
    /// or an initializer.
    pub interface: Option<&'a Interface>,
}

/// Gives the content of a parameter, if there is one.
pub type WeightContent<'a> = dyn Fn(TensorId) -> Result<Option<TensorData>, String> + 'a;

impl<'a> ExportOptions<'a> {
    /// Options for a model with the inputs and outputs of its graph.
    pub fn new(content: &'a WeightContent<'a>) -> ExportOptions<'a> {
        ExportOptions { content, interface: None }
    }
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
    /// By name of a value: the tensor of the graph that it is.
    pub tensors: HashMap<String, TensorId>,
    /// Operators that needed more than one node, by how many.
    pub compositions: Vec<(OperatorId, usize)>,
    /// Operators that divide integers by what may be 0, or −1: ONNX leaves the result open, and kernels in C end the
    /// process.
    pub trapping: Vec<OperatorId>,
}

impl Exported {
    /// Whether a node is a Transpose. Runtimes move these, and may transpose weights for it.
    pub fn has_transposes(&self) -> bool {
        self.model.graph.iter().flat_map(|graph| &graph.node).any(|node| node.op_type() == "Transpose")
    }
}

/// A weight that is handed to a runtime in memory.
#[derive(Debug, Clone)]
pub struct Weight {
    /// Of the initializer in the model.
    pub name: String,
    pub content: TensorData,
    /// Kinds of the operators of the model that read it.
    pub readers: Vec<String>,
}
