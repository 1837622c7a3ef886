//! A plan that stays loaded on its agents and computes inputs as they come.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use smol_str::SmolStr;

use super::{
    DeployError, DeployOptions, RunError, agents_of,
    deploy::{PlannedGraph, deploy_phases},
    loaded::{LoadedDeployment, Step},
    outputs::{OutputError, outputs},
};
use edgecut_agent::{
    deployment::{Deployment, Output, Terminals},
    protocol::{
        phase::Phase,
        setup::{EnforcedLimit, ReportedOutputs},
    },
};
use edgecut_engine::EngineError;
use edgecut_graph::{Graph, StatePair, TensorData, TensorId, TensorType, units::Micros};
use edgecut_plan::{Plan, planned_graph};
use tokio::runtime::Runtime;

use crate::{
    Error, Events, Model, Site,
    cluster::connect_all,
    decoder::prefill::Prefill,
    model::contents::{engine_error, given_state},
    outputs::only,
};

/// A plan that is loaded on its agents. Dropping it unloads the plan.
pub struct Deployed {
    /// Of the site.
    runtime: Arc<Runtime>,
    events: Events,
    /// The contents of inputs that decided a branch or a size when the model was read, by name: no others are right.
    fixed: BTreeMap<SmolStr, TensorData>,
    deployment: Arc<Deployment>,
    /// Inputs and outputs that stay on the agents: the model's, and those of the plan's graph.
    states: Vec<StatePair>,
    decode: DeployedPhase,
    /// Steps of several tokens, if there are any.
    prefill: Option<DeployedPhase>,
    loaded: LoadedDeployment,
    /// What has ended its steps.
    failure: Mutex<Option<Arc<RunError>>>,
}

/// What a phase computes, and of what.
struct DeployedPhase {
    graph: Graph,
    terminals: Terminals,
    /// The contents of inputs that are not given, and of parameters that are outputs.
    defaults: BTreeMap<TensorId, TensorData>,
    /// The expected time of a run.
    expected: Micros,
}

impl Site {
    /// Loads `plan` of `model` on its agents. Parameters have the contents that the model was read with. Several deployed
    /// plans may share devices, which cannot be measured until all are unloaded.
    ///
    /// # Errors
    /// If the plan is not of this model, an agent refuses, fails or does not answer, or the call is cancelled.
    pub fn deploy(&self, model: &Model, plan: &Plan) -> Result<Deployed, Error> {
        self.deploy_with((model, plan), None, 1, true)
    }

    /// The same for a decoder that generates `sequences` at a time, with steps of several tokens if there are any. Its devices are not shared.
    pub(super) fn deploy_phases(
        &self,
        model: &Model,
        plan: &Plan,
        prefill: Option<&Prefill>,
        sequences: usize,
    ) -> Result<Deployed, Error> {
        self.deploy_with((model, plan), prefill, sequences, false)
    }

    fn deploy_with(
        &self,
        (model, plan): (&Model, &Plan),
        prefill: Option<&Prefill>,
        sequences: usize,
        is_shared: bool,
    ) -> Result<Deployed, Error> {
        super::execution::check_model(model, plan)?;
        let graph = planned_graph(model.graph(), plan).map_err(Error::bad_input)?;
        model.contents(model.graph())?.beginning(&plan.model.states)?;
        let mut given = model.contents(&graph)?.beginning(&plan.states)?.given();
        if let Some(Prefill { step, graph, .. }) = prefill {
            given.extend(step.model.contents(graph)?.given());
        }
        let options = DeployOptions {
            enforced: EnforcedLimit::PlanWithTransfers,
            reported: ReportedOutputs::All,
            is_shared,
            ..DeployOptions::new(sequences as u32, &given)
        };
        let longer = prefill.map(|prefill| PlannedGraph { graph: &prefill.graph, plan: &prefill.plan });
        let deployment = deploy_phases(PlannedGraph { graph: &graph, plan }, longer, &self.cluster, &options);
        let deployment = deployment.map_err(|error| match error {
            DeployError::Setup(_) => Error::failed(error),
            _ => Error::bad_input(error),
        })?;
        let expected = plan.predicted.latency_us;
        let phase = |model: &Model, graph: &Graph, terminals: &Terminals, tokens: usize| {
            let expected = Micros(expected.0 * tokens as f64);
            DeployedPhase::of((model, graph), terminals.clone(), &plan.states, expected)
        };
        let decode = phase(model, &graph, &deployment.terminals, 1)?;
        let longer = prefill.zip(deployment.prefill.as_ref());
        let prefill = longer.map(|(of, terminals)| phase(&of.step.model, &of.graph, terminals, of.step.interface.step));
        let prefill = prefill.transpose()?;
        let deployment = Arc::new(deployment);
        let loading = async {
            let fleet = connect_all(&only(&self.cluster, &deployment), &self.events).await?;
            let agents = agents_of(&deployment, &fleet).map_err(Error::agent)?;
            LoadedDeployment::load(deployment.clone(), agents, given).await.map_err(|error| run_error(&error))
        };
        let loaded = self.runtime.block_on(self.events.until_cancelled(loading))?;
        let states = plan.model.states.iter().chain(&plan.states).cloned().collect();
        Ok(Deployed {
            runtime: self.runtime.clone(),
            events: self.events.clone(),
            fixed: fixed_contents(model, is_shared)?,
            deployment,
            states,
            decode,
            prefill,
            loaded,
            failure: Mutex::default(),
        })
    }
}

impl DeployedPhase {
    /// Of `graph` that was made of `model`.
    fn of(
        (model, graph): (&Model, &Graph),
        terminals: Terminals,
        states: &[StatePair],
        expected: Micros,
    ) -> Result<DeployedPhase, Error> {
        let contents = model.contents(graph)?.beginning(states)?;
        let returned = terminals.outputs.iter().filter_map(|output| match output {
            Output::Parameter(id) => Some(*id),
            Output::Sink(_) => None,
        });
        let defaults = terminals.inputs.iter().copied().chain(returned);
        let defaults = defaults.map(|id| Ok((id, contents.of(id)?))).collect::<Result<_, _>>().map_err(engine_error)?;
        Ok(DeployedPhase { graph: graph.clone(), terminals, defaults, expected })
    }
}

/// The contents of inputs that decided a branch or a size when `model` was read: those that were given, and with
/// `has_generated` those that were generated. Steps of a decoder may have others than were generated.
fn fixed_contents(model: &Model, has_generated: bool) -> Result<BTreeMap<SmolStr, TensorData>, Error> {
    let (graph, contents) = (model.graph(), model.contents(model.graph())?);
    let is_given = |name: &SmolStr| model.selected && model.given.get(name).is_some();
    let is_fixed = |name: &SmolStr| is_given(name) || has_generated && model.deciding.contains(name);
    let inputs = graph.inputs().filter(|id| is_fixed(&graph.tensor(*id).name));
    let content = |id: TensorId| Ok((graph.tensor(id).name.clone(), contents.of(id)?));
    inputs.map(content).collect::<Result<_, _>>().map_err(engine_error)
}

impl Deployed {
    /// The same, which only its own failures end: the events of its site no longer cancel it.
    #[must_use]
    pub fn detached(self) -> Deployed {
        Deployed { events: Events::default(), ..self }
    }

    /// The names and types of the inputs.
    pub fn inputs(&self) -> impl Iterator<Item = (&SmolStr, &TensorType)> {
        let graph = &self.decode.graph;
        graph.inputs().map(|id| graph.tensor(id)).map(|tensor| (&tensor.name, &tensor.ty))
    }

    /// The number of values that go from one server to another in a run, and their bytes; for a decoder, in a step of one token.
    pub(super) fn exchanges(&self) -> (usize, u64) {
        let setups = self.deployment.setups.iter();
        let sent = setups.flat_map(|setup| setup.sends.iter().filter_map(|send| setup.value(send.value)));
        sent.filter(|value| value.phase.is_decode())
            .fold((0, 0), |(count, bytes), value| (count + 1, bytes + value.bytes().0))
    }

    /// What has ended its steps, if anything has.
    pub(super) fn failure(&self) -> Option<Arc<RunError>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Computes the model's outputs for `inputs`, which are by name. Inputs that are not given have the contents that
    /// the model was read with. States begin as zeros and are not returned.
    ///
    /// # Errors
    /// If an input does not exist or has another type, an agent fails, or the call is cancelled. After a failure of an
    /// agent or a cancellation, the plan must be deployed again.
    pub fn run(&self, inputs: &BTreeMap<&str, TensorData>) -> Result<Vec<TensorData>, Error> {
        self.step((Phase::default(), 0), inputs, false)
    }

    /// Like [`Deployed::run`], in a phase and of a sequence. If it `continues`, it reads the states that the run before left in that
    /// sequence. Returns the outputs that are no states.
    pub(super) fn step(
        &self,
        (phase, sequence): (Phase, u32),
        inputs: &BTreeMap<&str, TensorData>,
        continues: bool,
    ) -> Result<Vec<TensorData>, Error> {
        let (phase, of) = match (&self.prefill, phase) {
            (Some(prefill), Phase::Prefill) => (Phase::Prefill, prefill),
            _ => (Phase::Decode, &self.decode),
        };
        let DeployedPhase { graph, terminals, defaults, expected } = of;
        let step = Step { phase, sequence, continues, expected: *expected };
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
            if self.fixed.get(*name).is_some_and(|read| read != data) {
                let what = format!(
                    "input `{name}` may have decided a branch or a size when the model was read: open the model with it"
                );
                return Err(Error::BadInput(what.into()));
            }
        }
        let content = |id: TensorId| {
            let given = inputs.get(graph.tensor(id).name.as_str()).or_else(|| defaults.get(&id));
            given.cloned().ok_or_else(|| EngineError::Other(format!("{} has no content", graph.tensor(id).name)))
        };
        let source = terminals.inputs.iter().map(|id| content(*id)).collect::<Result<Vec<_>, _>>();
        let source = source.map_err(engine_error)?;
        let failed = |error: Arc<RunError>| {
            // Another sequence was cancelled first, which unloads the plan.
            if matches!(*error, RunError::Unloaded) && self.events.is_cancelled() {
                return Error::Cancelled;
            }
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert_with(|| error.clone());
            run_error(&error)
        };
        let running = async { self.loaded.run(source, step).await.map_err(failed) };
        let sink = self.runtime.block_on(self.events.until_cancelled(running))?;
        outputs(terminals, &sink, &content).map_err(|error| match error {
            OutputError::Content(error) => engine_error(error),
            OutputError::Missing => Error::failed(error),
        })
    }
}

fn run_error(error: &RunError) -> Error {
    if error.is_of_agent() { Error::agent(error) } else { Error::failed(error) }
}
