//! A plan that stays loaded on its agents and computes inputs as they come.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    DeployError, DeployOptions, RunError, agents_of, deploy,
    loaded::LoadedDeployment,
    outputs::{OutputError, outputs},
};
use edgecut_agent::{
    deployment::{Deployment, Output},
    protocol::setup::{EnforcedLimit, ReportedOutputs},
};
use edgecut_engine::EngineError;
use edgecut_graph::{Graph, StatePair, TensorData, TensorId};
use edgecut_plan::{Plan, planned_graph};

use crate::{
    Error, Model, Site,
    cluster::connect_all,
    model::contents::{engine_error, given_state},
    outputs::only,
};

/// A plan that is loaded on its agents. Dropping it unloads the plan.
pub struct Deployed<'a> {
    site: &'a Site,
    model: &'a Model,
    graph: Graph,
    deployment: Arc<Deployment>,
    /// Inputs and outputs that stay on the agents: the model's, and those of the plan's graph.
    states: Vec<StatePair>,
    /// The contents of inputs that are not given, and of parameters that are outputs.
    defaults: BTreeMap<TensorId, TensorData>,
    loaded: LoadedDeployment,
}

impl Site {
    /// Loads `plan` of `model` on its agents. Parameters have the contents that the model was read with.
    ///
    /// # Errors
    /// If the plan is not of this model, an agent refuses, fails or does not answer, or the call is cancelled.
    pub fn deploy<'a>(&'a self, model: &'a Model, plan: &Plan) -> Result<Deployed<'a>, Error> {
        super::execution::check_model(model, plan)?;
        let graph = planned_graph(model.graph(), plan).map_err(Error::bad_input)?;
        model.contents(model.graph())?.beginning(&plan.model.states)?;
        let contents = model.contents(&graph)?.beginning(&plan.states)?;
        let given = contents.given();
        let options = DeployOptions {
            enforced: EnforcedLimit::PlanWithTransfers,
            reported: ReportedOutputs::All,
            ..DeployOptions::new(1, &given)
        };
        let deployment = deploy::deploy(&graph, plan, &self.cluster, &options).map_err(|error| match error {
            DeployError::Setup(_) => Error::failed(error),
            _ => Error::bad_input(error),
        })?;
        let returned = deployment.outputs.iter().filter_map(|output| match output {
            Output::Parameter(id) => Some(*id),
            Output::Sink(_) => None,
        });
        let defaults = deployment.inputs.iter().copied().chain(returned);
        let defaults = defaults.map(|id| Ok((id, contents.of(id)?))).collect::<Result<_, _>>().map_err(engine_error)?;
        drop(contents);
        let deployment = Arc::new(deployment);
        let loading = async {
            let fleet = connect_all(&only(&self.cluster, &deployment), &self.events).await?;
            let agents = agents_of(&deployment, &fleet).map_err(Error::agent)?;
            let expected = plan.predicted.latency_us;
            LoadedDeployment::load(deployment.clone(), agents, given, expected).await.map_err(run_error)
        };
        let loaded = self.runtime.block_on(self.events.until_cancelled(loading))?;
        let states = plan.model.states.iter().chain(&plan.states).cloned().collect();
        Ok(Deployed { site: self, model, graph, deployment, states, defaults, loaded })
    }
}

impl Deployed<'_> {
    /// The number of values that go from one server to another in a run, and their bytes.
    pub(super) fn exchanges(&self) -> (usize, u64) {
        let setups = self.deployment.setups.iter();
        let sent = setups.flat_map(|setup| setup.sends.iter().filter_map(|send| setup.value(send.value)));
        sent.fold((0, 0), |(count, bytes), value| (count + 1, bytes + value.bytes().0))
    }

    /// Computes the model's outputs for `inputs`, which are by name. Inputs that are not given have the contents that
    /// the model was read with. States begin as zeros and are not returned.
    ///
    /// # Errors
    /// If an input does not exist or has another type, an agent fails, or the call is cancelled. After a failure of an
    /// agent or a cancellation, the plan must be deployed again.
    pub fn run(&self, inputs: &BTreeMap<&str, TensorData>) -> Result<Vec<TensorData>, Error> {
        self.step(inputs, false)
    }

    /// Like [`Deployed::run`]. If it `continues`, it reads the states that the run before left. Returns the outputs that
    /// are no states.
    pub(super) fn step(&self, inputs: &BTreeMap<&str, TensorData>, continues: bool) -> Result<Vec<TensorData>, Error> {
        let graph = &self.graph;
        for (name, data) in inputs {
            if self.states.iter().any(|state| state.input == *name) {
                return Err(given_state(name));
            }
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
            if self.model.selected && self.model.given.get(name).is_some_and(|read| read != data) {
                let what = format!(
                    "input `{name}` may have decided a branch or a size when the model was read: open the model with it"
                );
                return Err(Error::BadInput(what.into()));
            }
        }
        let content = |id: TensorId| {
            let given = inputs.get(graph.tensor(id).name.as_str()).or_else(|| self.defaults.get(&id));
            given.cloned().ok_or_else(|| EngineError::Other(format!("{} has no content", graph.tensor(id).name)))
        };
        let source = self.deployment.inputs.iter().map(|id| content(*id)).collect::<Result<Vec<_>, _>>();
        let source = source.map_err(engine_error)?;
        let running = async { self.loaded.run(source, continues).await.map_err(run_error) };
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
