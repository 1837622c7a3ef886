//! What verbs share that run plans on agents: which servers take part, what came out, what one device computes.

use super::{
    Failure,
    contents::{Contents, engine_failure},
};
use edgecut_cluster::{
    Cluster,
    run::{
        Deployment,
        execute::Record,
        outputs::{self, OutputError},
    },
};
use edgecut_engine::{Engine, TractEngine};
use edgecut_graph::{Graph, TensorData};

/// The servers of the cluster that take part: others need not answer.
pub fn only(cluster: &Cluster, deployment: &Deployment) -> Cluster {
    let mut only = cluster.clone();
    only.servers.retain(|server| deployment.setups.iter().any(|setup| setup.server == server.name));
    only
}

/// The model's outputs as the sink gave them.
pub fn outputs(deployment: &Deployment, record: &Record, contents: &Contents<'_>) -> Result<Vec<TensorData>, Failure> {
    outputs::outputs(deployment, record, &|id| contents.of(id)).map_err(|error| match error {
        OutputError::Content(error) => engine_failure(error),
        OutputError::Missing => Failure::failed(error),
    })
}

/// What one device, this machine's processor, computes.
pub fn on_this_machine(graph: &Graph, contents: &Contents<'_>) -> Result<Vec<TensorData>, Failure> {
    let engine = TractEngine::new(1).map_err(Failure::failed)?;
    let mut whole = engine.load(graph, &|id| contents.of(id)).map_err(engine_failure)?;
    let inputs = contents.inputs().map_err(engine_failure)?;
    whole.run(&inputs).map_err(engine_failure)
}
