//! A plan run on agents that are there, from its deployment to the last result.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::{
    deploy::{DeployError, DeployOptions, Deployment, deploy},
    execute::{Record, RunError, RunOptions, agents_of, execute},
};
use crate::{
    agent::fleet::Fleet,
    cluster::Cluster,
    engine::EngineError,
    graph::{Graph, TensorData, TensorId},
    plan::Plan,
};

/// Runs `plan` so often, with so many inputs under way at a time.
///
/// # Errors
/// If an agent refuses its part, fails or is lost.
pub async fn perform(
    stage: &Stage<'_>,
    plan: &Plan,
    repeat: u64,
    in_flight: u32,
) -> Result<(Deployment, Record), PerformError> {
    let options = DeployOptions::new(in_flight, stage.given);
    let deployment = deploy(stage.graph, plan, stage.cluster, &options)?;
    let agents = agents_of(&deployment, stage.fleet)?;
    let inputs = deployment.inputs.iter().map(|id| (stage.content)(*id)).collect::<Result<Vec<_>, _>>()?;
    let how = RunOptions { repeat, in_flight, expected: plan.predicted.latency_us };
    let record = execute(&deployment, &agents, &inputs, stage.given, &how).await?;
    Ok((deployment, record))
}

/// What a plan is run with.
pub struct Stage<'a> {
    pub fleet: &'a Fleet,
    pub cluster: &'a Cluster,
    /// The graph that the plan is of: the model's, with the plan's splits.
    pub graph: &'a Graph,
    /// The contents of that graph's inputs.
    pub content: &'a dyn Fn(TensorId) -> Result<TensorData, EngineError>,
    /// Contents that agents cannot generate, by name.
    pub given: &'a BTreeMap<SmolStr, TensorData>,
}

/// Why a plan could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PerformError {
    #[error(transparent)]
    Deploy(#[from] DeployError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Contents(#[from] EngineError),
}
