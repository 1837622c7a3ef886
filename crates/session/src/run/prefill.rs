//! The plan of a decoder for steps of several tokens, which read its prompt: weights and states stay where the plan puts them.

use edgecut_agent::engine_choice;
use edgecut_engine::EngineChoice;
use edgecut_graph::{Graph, Origin, StatePair, units::Bytes};
use edgecut_plan::{Plan, file::DevicePlan, planned_graph, resized};

use crate::{
    Error, Model,
    decoder::{interface::StepInterface, sizes::with_step},
};

/// A decoder's step of several tokens, and its plan.
pub(super) struct Prefill {
    pub model: Model,
    pub plan: Plan,
    /// The graph that the plan places.
    pub graph: Graph,
    pub interface: StepInterface,
}

/// The longest step for which the memory limits of `plan`, which is for steps of one token, leave room. Assumes that activations grow
/// at most linearly with the number of tokens. Zero if not even the weights of both phases fit.
pub(super) fn longest_step(plan: &Plan) -> u64 {
    let of = |device: &DevicePlan| {
        let (memory, limit) = (&device.memory, device.memory_limit_bytes?);
        let is_shared = device.engine.as_ref().and_then(engine_choice) == Some(EngineChoice::OnnxRuntime);
        let weights = memory.parameter_bytes - memory.state_bytes;
        let held = memory.parameter_bytes + if is_shared { Bytes::ZERO } else { weights };
        let per_token = memory.load_bytes - memory.parameter_bytes;
        Some((limit - held).0 / per_token.0.max(1))
    };
    plan.devices.iter().filter_map(of).min().unwrap_or(u64::MAX)
}

impl Prefill {
    /// `plan` of `model`, whose steps have one token, for steps of `step` tokens; `None` if the model has no such steps.
    ///
    /// # Errors
    /// Why not: the model has other operators, states or parameters then, or does not fit the plan.
    pub fn of(model: &Model, plan: &Plan, step: u64) -> Result<Option<Prefill>, Error> {
        let Some(options) = with_step(&model.path, &model.options, step)? else { return Ok(None) };
        let mut longer = Model::open(&model.path, &options)?;
        share_constants(model.graph(), &mut longer);
        longer.check_sizes()?;
        let types = |model: &Model| {
            let ty = |pair: &StatePair| {
                model.graph().state(pair).ok().map(|state| model.graph().tensor(state.input).ty.clone())
            };
            model.states.iter().map(ty).collect::<Vec<_>>()
        };
        if longer.states != model.states || types(&longer) != types(model) {
            return Err(Error::BadInput("in steps of several tokens, the model has other states".into()));
        }
        let interface = StepInterface::of(&longer)?;
        let of_one = planned_graph(model.graph(), plan).map_err(Error::bad_input)?;
        let resized_plan = resized(plan, model.graph(), longer.graph()).map_err(Error::bad_input)?;
        let graph = planned_graph(longer.graph(), &resized_plan).map_err(Error::bad_input)?;
        resized::check_same_operators(&of_one, &graph).map_err(Error::bad_input)?;
        Ok(Some(Prefill { model: longer, plan: resized_plan, graph, interface }))
    }
}

/// Makes the constants of `longer` that equal those of `graph` the same, so that they are held and sent once.
fn share_constants(graph: &Graph, longer: &mut Model) {
    for id in graph.parameters() {
        let of_longer = &longer.import.graph;
        if (id.0 as usize) < of_longer.tensors().len()
            && let Origin::Constant(one) = &graph.tensor(id).origin
            && let Origin::Constant(other) = &of_longer.tensor(id).origin
            && one == other
        {
            longer.import.graph.tensor_mut(id).origin = Origin::Constant(one.clone());
        }
    }
}
