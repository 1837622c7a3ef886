//! What verbs share that run plans on agents: which servers take part, what came out, what one device computes.

use miette::Report;

use super::{
    Failure,
    contents::{Contents, engine_failure},
};
use crate::{
    cluster::Cluster,
    engine::{CpuEngine, Engine},
    graph::{Graph, TensorData},
    run::{Deployment, deploy::Output, execute::Record},
};

/// The servers of the cluster that take part: others need not answer.
pub fn only(cluster: &Cluster, deployment: &Deployment) -> Cluster {
    let mut only = cluster.clone();
    only.servers.retain(|server| deployment.setups.iter().any(|setup| setup.server == server.name));
    only
}

/// The model's outputs as the sink gave them.
pub fn outputs(deployment: &Deployment, record: &Record, contents: &Contents<'_>) -> Result<Vec<TensorData>, Failure> {
    let missing = || Failure::Failed(Report::msg("the sink did not send all outputs"));
    let output = |output: &Output| match output {
        Output::Sink(index) => record.sink_values.get(*index as usize).cloned().ok_or_else(missing),
        Output::Parameter(id) => contents.of(*id).map_err(engine_failure),
    };
    deployment.outputs.iter().map(output).collect()
}

/// What one device, this machine's processor, computes.
pub fn on_this_machine(graph: &Graph, contents: &Contents<'_>) -> Result<Vec<TensorData>, Failure> {
    let engine = CpuEngine::new(1).map_err(Failure::failed)?;
    let mut whole = engine.load(graph, &|id| contents.of(id)).map_err(engine_failure)?;
    let inputs = contents.inputs().map_err(engine_failure)?;
    whole.run(&inputs).map_err(engine_failure)
}
