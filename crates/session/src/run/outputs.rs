//! The outputs of a model that a plan computed.

use edgecut_agent::deployment::{Output, Terminals};
use edgecut_engine::EngineError;
use edgecut_graph::{TensorData, TensorId};

/// Why a run has no outputs.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("the sink did not send all outputs")]
    Missing,
    #[error(transparent)]
    Content(#[from] EngineError),
}

/// The model's outputs in order: of `sink_values`, as the sink sent them, or a parameter's `content` where the model returns one.
///
/// # Errors
/// If the sink sent too few, or a content cannot be read.
pub fn outputs(
    terminals: &Terminals,
    sink_values: &[TensorData],
    content: &dyn Fn(TensorId) -> Result<TensorData, EngineError>,
) -> Result<Vec<TensorData>, OutputError> {
    let output = |output: &Output| match output {
        Output::Sink(index) => sink_values.get(*index as usize).cloned().ok_or(OutputError::Missing),
        Output::Parameter(id) => Ok(content(*id)?),
    };
    terminals.outputs.iter().map(output).collect()
}
