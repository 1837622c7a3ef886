//! Errors of writing ONNX.

use edgecut_graph::OperatorId;

/// Why a graph could not be written as an ONNX model.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// An operator with these attributes and types cannot be expressed.
    #[error("{operator} cannot be written as ONNX: {reason}")]
    Operator { id: Option<OperatorId>, operator: String, reason: String },
    /// An input, output or parameter has a type that ONNX lacks.
    #[error("%{name} cannot be written as ONNX: elements of type {dtype} are not supported")]
    Type { name: String, dtype: String },
    /// The inputs or outputs that the model must have.
    #[error("the model cannot keep its inputs and outputs: {what}")]
    Interface { what: String },
    /// The content of a parameter is not available.
    #[error("the content of %{name}: {what}")]
    Content { name: String, what: String },
    #[error(
        "the model has {bytes} bytes and an ONNX file at most 2147483647: write its weights to a file of their own \
         (option `external_data`)"
    )]
    TooLarge { bytes: u64 },
}

impl ExportError {
    /// The operator that it is about.
    pub fn operator(&self) -> Option<OperatorId> {
        match self {
            ExportError::Operator { id, .. } => *id,
            _ => None,
        }
    }
}
