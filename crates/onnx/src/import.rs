//! Reads an ONNX file: bytes → messages → graph.

use std::path::Path;

use bytes::Bytes;
use edgecut_graph::{Graph, TensorData};
use edgecut_ops::passes::retype::BindDim;
use prost::Message;
use smol_str::SmolStr;

use crate::{error::OnnxError, lowering::Lowering, proto::ModelProto};

/// Computes the outputs of a graph without inputs; shape arithmetic is folded with it.
pub type Evaluate<'a> = dyn Fn(&Graph) -> Result<Vec<TensorData>, String> + 'a;

/// Options of [`import`].
pub struct ImportOptions<'a> {
    /// Folds operators on constants.
    pub evaluate: &'a Evaluate<'a>,
    /// Sizes of unknown dimensions, by input and axis.
    pub bind_dims: &'a [BindDim],
    /// Sizes of symbolic dimensions, by the names that the file gives them.
    pub symbols: &'a [(SmolStr, u64)],
    /// The content of an input, where it is given: an input whose values determine shapes is a constant.
    pub given: &'a dyn Fn(&str) -> Option<TensorData>,
    /// The folder of the model, for external data.
    pub folder: Option<&'a Path>,
}

/// Reads an ONNX model into a graph. `name` is the file name used in messages.
///
/// # Errors
/// If the file is damaged, an operator or element type is not supported, or a shape depends on data.
pub fn import(name: &str, bytes: Bytes, options: &ImportOptions<'_>) -> Result<Graph, OnnxError> {
    let model = ModelProto::decode(bytes)
        .map_err(|error| OnnxError::new(name, None, format!("the file is not a valid ONNX model: {error}")))?;
    let Some(graph) = &model.graph else {
        return Err(OnnxError::new(name, None, "the file has no graph"));
    };
    Lowering::new(&model, options).run(graph).map_err(|(place, what)| OnnxError::new(name, place, what))
}

/// Bytes of a file that are examined for its kind.
const SNIFFED_BYTES: usize = 4096;

/// Whether the bytes are an ONNX model: a message whose first fields are those of a model.
pub fn is_onnx(bytes: &[u8]) -> bool {
    // `ir_version` is field 1, a varint; every exporter writes it first. Version numbers are small.
    match bytes {
        [0x08, version, rest @ ..] if (1..=64).contains(version) => {
            rest.first().is_none_or(|tag| matches!(tag >> 3, 2..=8 | 14) && rest.len().min(SNIFFED_BYTES) > 0)
        }
        _ => false,
    }
}
