//! Prefill: the steps of several tokens in which a decoder reads its prompt. A plan for steps of one token is a plan for them too: weights
//! and states stay where it puts them.

use edgecut_agent::engine_choice;
use edgecut_engine::EngineChoice;
use edgecut_graph::{Graph, Origin, StatePair, units::Bytes};
use edgecut_plan::{Plan, file::DevicePlan, planned_graph, resized};

use super::{interface::StepInterface, sizes::with_step};
use crate::{Error, Model};

/// A decoder's step of several tokens, and its plan.
pub(crate) struct Prefill {
    pub step: LongStep,
    pub plan: Plan,
    /// The graph that the plan places.
    pub graph: Graph,
}

/// A decoder in steps of several tokens.
pub(crate) struct LongStep {
    pub model: Model,
    pub interface: StepInterface,
}

/// The steps in which a prompt is read: those of several tokens, then what is left token by token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PromptSteps {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of a step.
    pub step: u64,
}

impl PromptSteps {
    /// The longest step, unless an option says so.
    pub const MAX_STEP: u64 = 128;

    /// The fewest steps of at most `longest` tokens, those of what is left included.
    pub fn fewest(prompt: u64, longest: u64) -> PromptSteps {
        PromptSteps { prompt, step: fewest_steps(&[prompt], longest) }
    }

    /// The sum of `long` for each step of several tokens and `short` for each step of one.
    pub fn sum(&self, long: f64, short: f64) -> f64 {
        match self.step {
            1 => self.prompt as f64 * short,
            step => (self.prompt / step) as f64 * long + (self.prompt % step) as f64 * short,
        }
    }
}

/// Tokens of a step, at most `longest`, with which prompts of these numbers of tokens are read in the fewest steps, those of what is left
/// included.
pub(crate) fn fewest_steps(prompts: &[u64], longest: u64) -> u64 {
    let longest_prompt = prompts.iter().copied().max().unwrap_or(1);
    let lengths = 1..=longest.min(longest_prompt).clamp(1, PromptSteps::MAX_STEP);
    let steps = |length: &u64| prompts.iter().map(|prompt| prompt / length + prompt % length).sum::<u64>();
    lengths.rev().min_by_key(steps).unwrap_or(1)
}

/// Tokens of a step in which `plan`, which is for steps of one token, reads prompts of these numbers of tokens, with `sequences` in flight:
/// as it says, or those of the fewest steps that its memory limits leave room for.
pub(crate) fn planned_step(prompts: &[u64], plan: &Plan, sequences: usize) -> u64 {
    let is_said = |prompt: u64| prompts.iter().all(|of_sequence| *of_sequence == prompt);
    let said = plan.prefill.filter(|prefill| prefill.step > 0 && sequences == 1 && is_said(prefill.prompt));
    said.map_or_else(|| fewest_steps(prompts, longest_step(plan, sequences)), |prefill| prefill.step)
}

/// The longest step for which the memory limits of `plan`, which is for steps of one token, leave room with `sequences` in flight.
/// Assumes that activations grow at most linearly with the number of tokens. Zero if not even the weights of both phases fit.
pub(crate) fn longest_step(plan: &Plan, sequences: usize) -> u64 {
    let of = |device: &DevicePlan| {
        let (memory, limit) = (&device.memory, device.memory_limit_bytes?);
        let is_shared = device.engine.as_ref().and_then(engine_choice) == Some(EngineChoice::OnnxRuntime);
        let weights = memory.parameter_bytes - memory.state_bytes;
        let held = memory.parameter_bytes + if is_shared { Bytes::ZERO } else { weights };
        // The other sequences hold one content of each state.
        let others = Bytes((memory.state_bytes.0 / 2).saturating_mul((sequences as u64).saturating_sub(1)));
        let per_token = Bytes((memory.load_bytes - memory.parameter_bytes).0.saturating_mul(sequences as u64));
        Some((limit - (held + others)).0 / per_token.0.max(1))
    };
    plan.devices.iter().filter_map(of).min().unwrap_or(u64::MAX)
}

impl LongStep {
    /// `model`, whose steps have one token, in steps of `step` tokens; `None` if the file fixes the number of tokens.
    ///
    /// # Errors
    /// If the model has other operators or states then, or cannot be read.
    pub fn of(model: &Model, step: u64) -> Result<Option<LongStep>, Error> {
        let Some(options) = with_step(&model.path, &model.options, step)? else { return Ok(None) };
        let mut longer = Model::open(&model.path, &options)?;
        share_constants(model.graph(), &mut longer);
        longer.check_sizes()?;
        resized::check_same_operators(model.graph(), longer.graph()).map_err(Error::bad_input)?;
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
        Ok(Some(LongStep { model: longer, interface }))
    }
}

impl Prefill {
    /// `plan` of `model`, whose steps have one token, for steps of `step` tokens; `None` if the model has no such steps.
    ///
    /// # Errors
    /// Why not: the model has other operators, states or parameters then, or does not fit the plan.
    pub fn of(model: &Model, plan: &Plan, step: u64) -> Result<Option<Prefill>, Error> {
        let Some(step) = LongStep::of(model, step)? else { return Ok(None) };
        let longer = step.model.graph();
        let of_one = planned_graph(model.graph(), plan).map_err(Error::bad_input)?;
        let resized_plan = resized(plan, model.graph(), longer).map_err(Error::bad_input)?;
        let graph = planned_graph(longer, &resized_plan).map_err(Error::bad_input)?;
        resized::check_same_operators(&of_one, &graph).map_err(Error::bad_input)?;
        Ok(Some(Prefill { step, plan: resized_plan, graph }))
    }
}

/// Makes the constants of `longer` that equal those of `graph` the same, so that they are held and sent once.
pub(crate) fn share_constants(graph: &Graph, longer: &mut Model) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_read_in_few_steps() {
        for (prompt, longest, step, steps) in [
            (1, 128, 1, 1.0),
            (5, 128, 5, 1.0),
            (128, 128, 128, 1.0),
            (129, 128, 128, 2.0),
            (193, 128, 96, 3.0),
            (200, 500, 100, 2.0),
            (5, 2, 2, 3.0),
            (7, 0, 1, 7.0),
        ] {
            assert_eq!(fewest_steps(&[prompt, prompt], longest), step, "{prompt} {longest}");
            let fewest = PromptSteps::fewest(prompt, longest);
            assert_eq!((fewest.step, fewest.sum(1.0, 1.0)), (step, steps), "{prompt} {longest}");
        }
        assert_eq!(fewest_steps(&[60, 100, 61], 128), 20, "3, 5 and 4 steps");
    }
}
