//! A plan run on agents that are there, from its deployment to the last result.

use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::{
    deploy::{DeployError, DeployOptions, deploy},
    error::RunError,
    execute::{ExecuteOptions, agents_of, execute},
};
use edgecut_agent::{Cluster, client::Fleet, deployment::Deployment, results::record::Record};
use edgecut_engine::EngineError;
use edgecut_graph::{Graph, TensorData, TensorId};
use edgecut_plan::{Plan, Stop};
use edgecut_values::seeded;

/// Runs `plan` `repeat` times, with up to `in_flight` inputs in flight.
///
/// # Errors
/// If an agent refuses its part, fails or is lost.
pub(crate) async fn perform(
    context: &RunContext<'_>,
    plan: &Plan,
    repeat: u64,
    in_flight: u32,
) -> Result<(Deployment, Record), PerformError> {
    let options = DeployOptions::new(in_flight, context.given);
    let deployment = deploy(context.graph, plan, context.cluster, &options)?;
    let agents = agents_of(&deployment, context.fleet)?;
    let inputs = deployment.terminals.inputs.iter().map(|id| content(context, *id)).collect::<Result<Vec<_>, _>>()?;
    let how = ExecuteOptions {
        repeat,
        in_flight,
        expected: plan.predicted.latency_us,
        progress: &|_| {},
        stop: Stop::never(),
    };
    let record = execute(&deployment, &agents, &inputs, context.given, &how).await?;
    Ok((deployment, record))
}

/// What a plan is run with.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    pub fleet: &'a Fleet,
    pub cluster: &'a Cluster,
    /// The graph that the plan is of: the model's, with the plan's splits.
    pub graph: &'a Graph,
    /// Contents of inputs and parameters, by name; all others are generated.
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

/// The content of an input: given, or generated from its name.
fn content(context: &RunContext<'_>, id: TensorId) -> Result<TensorData, EngineError> {
    let tensor = context.graph.tensor(id);
    if let Some(data) = context.given.get(&tensor.name) {
        return Ok(data.clone());
    }
    let failed =
        |error: &dyn std::fmt::Display| EngineError::Tensor { name: tensor.name.to_string(), what: error.to_string() };
    seeded(&tensor.name, &tensor.ty).map_err(|error| failed(&error))
}
