//! A plan that stays loaded on its agents, for programs that compute inputs as they come.

use std::{collections::BTreeMap, sync::Arc};

use edgecut_cluster::{
    agent::protocol::setup::{EnforcedLimit, ReportedOutputs},
    run::{
        DeployError, DeployOptions, Deployment, RunError, agents_of, deploy,
        loaded::LoadedDeployment,
        outputs::{OutputError, outputs},
    },
};
use edgecut_graph::{Graph, TensorData, TensorId};
use edgecut_plan::{Plan, schedule::apply_schedules, split::divided};

use crate::{Error, Model, Site, cluster::reach_all, model::contents::engine_error, outputs::only};

/// A plan of a model that is loaded on its agents. It is unloaded when this is dropped.
pub struct Deployed<'a> {
    site: &'a Site,
    model: &'a Model,
    graph: Graph,
    deployment: Arc<Deployment>,
    loaded: LoadedDeployment,
}

impl Site {
    /// Loads `plan` of `model` on its agents, with the contents that the model was read with.
    ///
    /// # Errors
    /// If the plan is not of this model, or an agent refuses, fails or does not answer.
    pub fn deploy<'a>(&'a self, model: &'a Model, plan: &Plan) -> Result<Deployed<'a>, Error> {
        super::execution::check_model(model, plan)?;
        let split = divided(model.graph(), &plan.splits).map_err(Error::bad_input)?;
        let graph = apply_schedules(&split, &plan.schedules).map_err(Error::bad_input)?.graph;
        let given = model.contents(&graph)?.given();
        let options = DeployOptions {
            enforced: EnforcedLimit::PlanWithTransfers,
            reported: ReportedOutputs::All,
            ..DeployOptions::new(1, &given)
        };
        let deployment = deploy(&graph, plan, &self.cluster, &options).map_err(|error| match error {
            DeployError::Setup(_) => Error::failed(error),
            _ => Error::bad_input(error),
        })?;
        let deployment = Arc::new(deployment);
        let loading = async {
            let fleet = reach_all(&only(&self.cluster, &deployment), &self.events).await?;
            let agents = agents_of(&deployment, &fleet).map_err(Error::agent)?;
            let expected = plan.predicted.latency_us;
            LoadedDeployment::load(deployment.clone(), agents, given, expected).await.map_err(run_error)
        };
        let loaded = self.runtime.block_on(self.events.until_cancelled(loading))?;
        Ok(Deployed { site: self, model, graph, deployment, loaded })
    }
}

impl Deployed<'_> {
    /// The model's outputs for `inputs`, by the names of its inputs; those that are not given are as the model was read with.
    ///
    /// # Errors
    /// If an input is none of the model's or has another type, an agent fails, or it is cancelled. After a failure of an agent
    /// the plan is to be deployed again.
    pub fn run(&self, inputs: &BTreeMap<&str, TensorData>) -> Result<Vec<TensorData>, Error> {
        let graph = &self.graph;
        for (name, data) in inputs {
            let input = graph.inputs().map(|id| graph.tensor(id)).find(|tensor| tensor.name == *name);
            let Some(input) = input else {
                let names: Vec<&str> = graph.inputs().map(|id| graph.tensor(id).name.as_str()).collect();
                let what = format!("the model has no input `{name}`; its inputs are {}", names.join(", "));
                return Err(Error::BadInput(what.into()));
            };
            if !data.ty().is_instance_of(&input.ty) {
                let what = format!("input `{name}` is of type {}, {} was given", input.ty, data.ty());
                return Err(Error::BadInput(what.into()));
            }
        }
        let contents = self.model.contents(graph)?;
        let content = |id: TensorId| match inputs.get(graph.tensor(id).name.as_str()) {
            Some(data) => Ok(data.clone()),
            None => contents.of(id),
        };
        let source = self.deployment.inputs.iter().map(|id| content(*id)).collect::<Result<Vec<_>, _>>();
        let source = source.map_err(engine_error)?;
        let running = async { self.loaded.run(source).await.map_err(run_error) };
        let sink = self.site.runtime.block_on(self.site.events.until_cancelled(running))?;
        outputs(&self.deployment, &sink, &content).map_err(|error| match error {
            OutputError::Content(error) => engine_error(error),
            OutputError::Missing => Error::failed(error),
        })
    }
}

fn run_error(error: RunError) -> Error {
    if error.is_of_agent() { Error::agent(error) } else { Error::failed(error) }
}
