//! Types of a model's outputs, as ONNX Runtime infers them when it prepares the model.

use edgecut_graph::{Dim, TensorType};
use ort::{
    Error,
    logging::LogLevel,
    session::{Session, builder::GraphOptimizationLevel},
    value::ValueType,
};

use super::{library::Library, value::dtype_of};
use crate::EngineError;

/// See [`OnnxRuntimeEngine::output_types`](super::OnnxRuntimeEngine::output_types).
pub(super) fn output_types(library: &Library, model: &[u8]) -> Result<Vec<Option<TensorType>>, EngineError> {
    let session = prepared(library, model).map_err(|error| EngineError::Other(error.to_string()))?;
    Ok(session.outputs().iter().map(|output| tensor_type(output.dtype())).collect())
}

/// A session without optimisations: constant folding would compute.
fn prepared(library: &Library, model: &[u8]) -> Result<Session, Error> {
    Session::builder(&library.environment)?
        .with_log_level(LogLevel::Fatal)?
        .with_optimization_level(GraphOptimizationLevel::Disable)?
        .with_intra_threads(1)?
        .with_inter_threads(1)?
        .commit_from_memory(model)
}

fn tensor_type(ty: &ValueType) -> Option<TensorType> {
    let ValueType::Tensor { ty, shape, .. } = ty else { return None };
    let dim = |size: &i64| u64::try_from(*size).map_or(Dim::Any, Dim::Known);
    Some(TensorType::new(dtype_of((*ty).into())?, shape.iter().map(dim).collect()))
}
