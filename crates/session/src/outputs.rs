//! Shared by verbs that run plans: the servers that take part, the outputs, and the outputs of one device.

use std::path::Path;

use edgecut_agent::{Cluster, deployment::Deployment, results::record::Record};
use edgecut_engine::{EngineChoice, EngineError, EngineOptions};
use edgecut_graph::{Graph, TensorData};
use edgecut_values::{NpzError, write_npz};

use crate::{
    Error,
    model::contents::{Contents, engine_error},
    run::outputs::{self, OutputError},
};

/// `cluster` with only the servers that take part in `deployment`. Other servers need not answer.
pub fn only(cluster: &Cluster, deployment: &Deployment) -> Cluster {
    let mut only = cluster.clone();
    only.servers.retain(|server| deployment.setups.iter().any(|setup| setup.server == server.name));
    only
}

/// The model's outputs, from the values at the sink.
pub fn outputs(deployment: &Deployment, record: &Record, contents: &Contents<'_>) -> Result<Vec<TensorData>, Error> {
    outputs::outputs(&deployment.terminals, &record.sink_values, &|id| contents.of(id)).map_err(|error| match error {
        OutputError::Content(error) => engine_error(error),
        OutputError::Missing => Error::failed(error),
    })
}

/// Writes the outputs of a run as `out_0`, `out_1`, … of an `.npz` file.
///
/// # Errors
/// If the file cannot be written.
pub fn write_outputs(path: &Path, outputs: &[TensorData]) -> Result<(), Error> {
    let named = outputs.iter().enumerate().map(|(i, tensor)| (format!("out_{i}"), tensor));
    write_npz(path, named).map_err(|error| match error {
        NpzError::File { source, .. } => Error::unwritable(path, &source),
        error => Error::failed(error),
    })
}

/// Computes the outputs on this machine's CPU, with the first of `engines` that is installed and supports the model,
/// else with tract. If tract does not support the model, ONNX Runtime is tried.
pub(crate) fn on_this_machine(
    graph: &Graph,
    contents: &Contents<'_>,
    engines: &[EngineOptions],
) -> Result<Vec<TensorData>, EngineError> {
    let evaluate = |options: &EngineOptions| options.start(1)?.evaluate(graph, &|id| contents.of(id));
    let by_others = engines.iter().filter(|options| options.engine != EngineChoice::Tract);
    if let Some(outputs) = by_others.into_iter().find_map(|options| evaluate(options).ok()) {
        return Ok(outputs);
    }
    match evaluate(&EngineOptions::default()) {
        Err(error @ EngineError::Unsupported(_)) => {
            let other = EngineOptions { engine: EngineChoice::OnnxRuntime, ..EngineOptions::default() };
            evaluate(&other).map_err(|_| error)
        }
        computed => computed,
    }
}
