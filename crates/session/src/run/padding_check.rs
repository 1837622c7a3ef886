//! Checks that padding does not change a decoder's logits. Left padding does if positions depend on the length of the KV cache.

use edgecut_agent::{protocol::phase::Phase, results::Tolerance};
use edgecut_engine::Engine;
use edgecut_graph::{DType, TensorData};
use edgecut_plan::Plan;

use super::{
    execution::reference_engines,
    progress::RunWatch,
    steps::{LocalSteps, Steps},
};
use crate::{
    Error, Events, Model, Site,
    decoder::{interface::StepInterface, prefill::share_constants, sizes::without_padding},
};

/// Maximum relative L2 error of the logits. Those of Llama, Qwen2, Phi, GPT-NeoX, GPT-2 and OPT with random weights, exported by
/// Optimum, differ by 7e-7 at most.
const MAX_ERROR: f64 = 1e-3;

/// The same for models that compute in 16 bits or quantise activations. A Llama that is quantised dynamically does not differ at all,
/// but a sum in another order may change a quantised number by one.
const MAX_ERROR_LOW_PRECISION: f64 = 5e-3;

/// How many tokens are compared, where one step computes them: the effect of wrong positions grows with their number.
const JOINT_TOKENS: usize = 8;

/// How many tokens are compared where each takes a model of its own: the first to which positions matter.
const SINGLE_TOKENS: usize = 2;

/// The logits of the first tokens of a sequence, computed without padding.
pub(super) struct UnpaddedReference {
    tokens: Vec<u64>,
    /// The logits after this many tokens.
    logits: Vec<(usize, TensorData)>,
    max_error: f64,
}

impl UnpaddedReference {
    /// Computes the first tokens of a sequence like `prompt` with `model` in a context of their length. `None` if padding does not matter
    /// to it or, with a notice, if they cannot be computed.
    pub fn compute(
        (model, interface): (&Model, &StepInterface),
        prompt: &[u64],
        engine: &dyn Engine,
        events: &Events,
    ) -> Option<UnpaddedReference> {
        if !interface.may_depend_on_padding(model) {
            return None;
        }
        let why = match UnpaddedReference::try_compute((model, interface), prompt, engine) {
            Ok(Some(reference)) => return Some(reference),
            Ok(None) => "the file fixes the length of the KV cache".to_string(),
            Err(error) => error.to_string(),
        };
        notice_unchecked(events, &why);
        None
    }

    /// `None` if the file fixes the length of the KV cache.
    fn try_compute(
        (model, interface): (&Model, &StepInterface),
        prompt: &[u64],
        engine: &dyn Engine,
    ) -> Result<Option<UnpaddedReference>, Error> {
        let is_precise = is_precise(model);
        let max_error = if is_precise { MAX_ERROR } else { MAX_ERROR_LOW_PRECISION };
        // Quantisation depends on all tokens of a step, so that steps of the same length are compared.
        let joint = if interface.step > 1 { interface.step } else { JOINT_TOKENS };
        if interface.step > 1 || is_precise {
            let tokens = first_tokens(prompt, interface, joint);
            let logits = logits((model, interface), &tokens, tokens.len(), engine)?;
            if let Some(logits) = logits {
                return Ok(Some(UnpaddedReference { tokens, logits, max_error }));
            }
        }
        let tokens = first_tokens(prompt, interface, SINGLE_TOKENS);
        let logits = if interface.step == 1 { logits((model, interface), &tokens, 1, engine)? } else { None };
        Ok(logits.map(|logits| UnpaddedReference { tokens, logits, max_error }))
    }

    /// Checks that `steps` of `phase`, with padding, compute the same.
    ///
    /// # Errors
    /// If a step fails or the logits differ.
    pub fn check(
        &self,
        model: &Model,
        steps: &mut dyn Steps,
        (phase, interface): (Phase, &StepInterface),
    ) -> Result<(), Error> {
        let mut past = 0;
        for tokens in self.tokens.chunks(interface.step) {
            let outputs = steps.step(phase, &interface.inputs(past, tokens)?, past > 0)?;
            past += tokens.len();
            let Some((_, reference)) = self.logits.iter().find(|(seen, _)| *seen == past) else { continue };
            let error = relative_l2_error(&interface.logits_row(&outputs)?, reference);
            tracing::debug!(past, error, "relative error of logits by padding");
            if error.is_none_or(|error| error > self.max_error) {
                return Err(differs(model, error, self.max_error));
            }
        }
        Ok(())
    }
}

/// The logits after each step of `step` of `tokens` by `model` without padding: each step by the model in a context of what it has
/// seen then. `None` if the file fixes the length of the KV cache, or another number of tokens of a step.
fn logits(
    (model, interface): (&Model, &StepInterface),
    tokens: &[u64],
    step: usize,
    engine: &dyn Engine,
) -> Result<Option<Vec<(usize, TensorData)>>, Error> {
    let (mut states, mut found, mut past) = (Vec::new(), Vec::new(), 0);
    for tokens in tokens.chunks(step) {
        let seen = past + tokens.len();
        let sizes = (tokens.len() as u64, seen as u64);
        let sized = without_padding(&model.path, &model.options, &interface.caches, sizes)?;
        let Some(options) = sized else { return Ok(None) };
        let mut exact = Model::open(&model.path, &options)?;
        share_constants(model.graph(), &mut exact);
        let interface = StepInterface::of(&exact)?;
        let mut steps = LocalSteps::load(&exact, engine)?;
        steps.continue_from(states);
        let outputs = steps.step(Phase::Decode, &interface.inputs(past, tokens)?, past > 0)?;
        found.push((seen, interface.logits_row(&outputs)?));
        states = steps.into_states();
        past = seen;
    }
    Ok(Some(found))
}

/// Whether `model` computes in at least 32 bits.
fn is_precise(model: &Model) -> bool {
    let is_half = |dtype: DType| dtype.is_float() && dtype.size() < 4;
    let graph = model.graph();
    Tolerance::of(graph) == Tolerance::Rounding && !graph.tensors().any(|(_, tensor)| is_half(tensor.ty.dtype))
}

fn notice_unchecked(events: &Events, why: &str) {
    events.notice(format_args!("padding was not checked, so tokens may be wrong: {why}"));
}

/// The error that the logits of `model` differ by the relative `error` with padding.
fn differs(model: &Model, error: Option<f64>, max_error: f64) -> Error {
    let path = model.path.display();
    let what = match error {
        Some(error) => {
            format!("with padding, its logits differ by {error:.1e} from those without (limit {max_error:.0e})")
        }
        None => "with padding, its logits are not finite, or others are infinite".to_string(),
    };
    let advice = "its positions probably depend on the length of the KV cache: export it with positions from `position_ids` or \
                  `attention_mask`";
    Error::BadInput(format!("{path}: {what}: {advice}").into())
}

/// At most `count` tokens: those of `prompt`, then others. The second differs from the first, so that attention weights affect the
/// result.
fn first_tokens(prompt: &[u64], interface: &StepInterface, count: usize) -> Vec<u64> {
    let Some(first) = prompt.first().copied() else { return Vec::new() };
    let other = prompt.iter().copied().find(|token| *token != first).unwrap_or(if first == 0 { 1 } else { first - 1 });
    let is_known = |token: &u64| interface.vocabulary.is_none_or(|vocabulary| *token < vocabulary);
    let count = interface.context.unwrap_or(count).min(count);
    let rest = prompt.iter().copied().skip(2).chain([first, other].into_iter().cycle());
    [first, other].into_iter().chain(rest).filter(is_known).take(count).collect()
}

/// |a − b| / |b|, in the Euclidean norm; `None` if it is not finite.
fn relative_l2_error(a: &TensorData, b: &TensorData) -> Option<f64> {
    let (a, b) = (a.to_f64s()?, b.to_f64s()?);
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    // Logits of tokens that a model excludes are infinite in both.
    let finite: Vec<(f64, f64)> = a.into_iter().zip(b).filter(|(a, b)| a != b || a.is_finite()).collect();
    let error = norm(&mut finite.iter().map(|(a, b)| a - b)) / norm(&mut finite.iter().map(|(_, b)| *b));
    error.is_finite().then_some(error)
}

impl Site {
    /// Checks that `model` computes the first tokens of `prompt` on this machine as without padding. Uses the first engine of `plan` that
    /// this machine has.
    ///
    /// # Errors
    /// If they differ.
    pub(super) fn check_padding(
        &self,
        (model, interface): (&Model, &StepInterface),
        plan: &Plan,
        prompt: &[u64],
    ) -> Result<(), Error> {
        if !interface.may_depend_on_padding(model) {
            return Ok(());
        }
        let watch = RunWatch::start(&self.events);
        watch.tell("checking padding on this machine");
        let engines = reference_engines(self, plan);
        let engine = engines.iter().find_map(|engine| engine.start(1).ok());
        let Some(engine) = engine else {
            notice_unchecked(&self.events, "this machine has none of the engines of the plan");
            return Ok(());
        };
        let reference = UnpaddedReference::compute((model, interface), prompt, engine.as_ref(), &self.events);
        let Some(reference) = reference else { return Ok(()) };
        let mut steps = LocalSteps::load(model, engine.as_ref())?;
        reference.check(model, &mut steps, (Phase::Decode, interface))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_what_is_finite_in_both() {
        let tensor = |values: &[f32; 3]| {
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            TensorData::new(DType::F32, [3], bytes).unwrap()
        };
        let infinite = f32::NEG_INFINITY;
        for (a, b, error) in [
            ([3.0, 4.5, infinite], [3.0, 4.0, infinite], Some(0.1)),
            ([3.0, 4.0, 0.0], [3.0, 4.0, infinite], None),
            ([3.0, 4.0, f32::NAN], [3.0, 4.0, 0.0], None),
        ] {
            assert_eq!(relative_l2_error(&tensor(&a), &tensor(&b)), error, "{a:?} {b:?}");
        }
    }
}
