//! Reads an ONNX file: bytes → messages → graph.

use std::path::Path;

use bytes::Bytes;
use edgecut_graph::{Graph, TensorData};
use edgecut_ops::passes::{retype::BindDim, weights::classify_weights};
use prost::Message;
use smol_str::SmolStr;

use crate::{error::OnnxError, live::live, lowering::Lowering, proto::ModelProto};

/// Gives the content of an input or parameter by its name.
pub type Content<'a> = dyn Fn(&str) -> Option<TensorData> + 'a;

/// Computes the outputs of a graph; inputs without a given content have their generated ones. Shape arithmetic is folded
/// with it, and what depends on data is decided.
pub type Evaluate<'a> = dyn Fn(&Graph, &Content<'_>) -> Result<Vec<TensorData>, String> + 'a;

/// Options of [`import`].
pub struct ImportOptions<'a> {
    /// Computes operators on constants, and conditions.
    pub evaluate: &'a Evaluate<'a>,
    /// Sizes of unknown dimensions.
    pub bind_dims: &'a [BindDim],
    /// The content of an input, where it is given: an input whose values determine shapes is a constant.
    pub given: &'a Content<'a>,
    /// The folder of the model, for external data.
    pub folder: Option<&'a Path>,
}

/// A model that was read.
#[derive(Debug)]
pub struct Imported {
    pub graph: Graph,
    /// Inputs whose generated contents decided a branch, the turns of a loop or a size.
    pub generated: Vec<SmolStr>,
}

/// Reads an ONNX model into a graph. `name` is the file name used in messages.
///
/// # Errors
/// If the file is damaged, an operator or element type is not supported and the file does not state the types that would
/// keep it as an opaque operator, or a shape depends on data.
pub fn import(name: &str, bytes: Bytes, options: &ImportOptions<'_>) -> Result<Imported, OnnxError> {
    let file_bytes = bytes.len();
    let model = ModelProto::decode(bytes)
        .map_err(|error| OnnxError::new(name, None, format!("the file is not a valid ONNX model: {error}")))?;
    let Some(graph) = &model.graph else {
        return Err(OnnxError::new(name, None, "the file has no graph"));
    };
    let lowering = Lowering::new(&model, file_bytes, options);
    let lowered = lowering.run(graph).map_err(|(place, what)| OnnxError::new(name, place, what))?;
    let mut graph = live(&lowered.graph);
    classify_weights(&mut graph, |name| (options.given)(name).is_some());
    Ok(Imported { graph, generated: lowered.generated.into_iter().collect() })
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
