//! What verbs share that run plans on agents: which servers take part, what came out, what one device computes.

use edgecut_cluster::{
    Cluster,
    run::{
        Deployment,
        outputs::{self, OutputError},
        record::Record,
    },
};
use edgecut_engine::{EngineChoice, EngineError, EngineOptions};
use edgecut_graph::{Graph, TensorData};

use crate::{
    Error,
    model::contents::{Contents, engine_error},
};

/// The servers of the cluster that take part: others need not answer.
pub fn only(cluster: &Cluster, deployment: &Deployment) -> Cluster {
    let mut only = cluster.clone();
    only.servers.retain(|server| deployment.setups.iter().any(|setup| setup.server == server.name));
    only
}

/// The model's outputs as the sink gave them.
pub fn outputs(deployment: &Deployment, record: &Record, contents: &Contents<'_>) -> Result<Vec<TensorData>, Error> {
    outputs::outputs(deployment, &record.sink_values, &|id| contents.of(id)).map_err(|error| match error {
        OutputError::Content(error) => engine_error(error),
        OutputError::Missing => Error::failed(error),
    })
}

/// What one device, this machine's processor, computes: by the first of `engines` that is here and can, else by tract, or by
/// ONNX Runtime what tract lacks.
pub fn on_this_machine(
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
