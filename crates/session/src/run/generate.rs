//! Generation: a decoder reads the tokens of a prompt, then computes token after token, each from those before.
//!
//! The states stay where they are read: on the agents of a plan, or in the memory of this process.

use std::{path::Path, time::Instant};

use edgecut_agent::{
    Oversubscribed,
    protocol::phase::Phase,
    results::{Latencies, Tolerance},
};
use edgecut_engine::EngineOptions;
use edgecut_graph::units::Micros;
use edgecut_plan::Plan;
use serde::{Deserialize, Serialize};

use super::{
    deployed::Deployed,
    execution::reference_engines,
    planned::PlannedModel,
    prefill::{Prefill, longest_step},
    progress::RunWatch,
    sampling::sample,
    steps::{LocalSteps, Steps},
    token_check::TokenCheck,
};
use crate::{Error, Events, Model, ModelOptions, Site, SiteOptions, decoder::interface::StepInterface};

/// What is generated, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    /// Number of tokens to generate.
    pub tokens: usize,
    /// The tokens of the prompt; at least one.
    pub prompt_ids: Vec<u64>,
    /// Tokens of a step that reads the prompt. By default [`ModelOptions::prompt`], or at most 128, of a plan as many as its memory
    /// limits leave room for.
    pub prompt_step: Option<u64>,
    /// Each token is drawn from this number of tokens with the largest logits, by their softmax. With 1, the largest is taken.
    pub top_k: usize,
    /// The seed of these draws.
    pub seed: u64,
    /// Do not compare the tokens of a plan with those of one device.
    pub no_check: bool,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions { tokens: 64, prompt_ids: Vec::new(), prompt_step: None, top_k: 1, seed: 0, no_check: false }
    }
}

/// Tokens that were generated, and their times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generation {
    pub tokens: Vec<u64>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// From the begin of the prompt to the first token.
    pub prefill_us: Micros,
    /// Of each token after the first.
    #[serde(skip)]
    pub times_us: Vec<Micros>,
    /// Summary of these times; `None` if there is only one token.
    pub token_us: Option<Latencies>,
    /// Tensors that go from one server to another for a token.
    pub exchanges: usize,
    /// Their bytes.
    pub exchanged_bytes: u64,
    /// Whether the tokens are those of one device, near ties included; `None` if they were not compared.
    pub is_equal: Option<bool>,
    /// Tokens that differ from those of one device after the same tokens, but whose logits there are within tolerance of its choice.
    pub near_ties: usize,
}

/// What becomes of a cancelled generation.
const KEPT: &str = "the generated tokens are reported";

impl GenerateOptions {
    fn check(&self) -> Result<(), Error> {
        let what = match self {
            GenerateOptions { tokens: 0, .. } => "option `tokens`: expected at least one token",
            GenerateOptions { prompt_ids, .. } if prompt_ids.is_empty() => {
                "option `prompt_ids`: expected the numbers of at least one token"
            }
            GenerateOptions { prompt_step: Some(0), .. } => "option `prompt`: expected at least one token",
            GenerateOptions { top_k: 0, .. } => "option `top_k`: expected at least one token",
            _ => return Ok(()),
        };
        Err(Error::BadInput(what.into()))
    }
}

/// The longest step in which a prompt is read, unless an option says so.
const MAX_PREFILL_STEP: u64 = 128;

/// The length of a step that reads a prompt of `prompt` tokens, at most `longest`: the one with the fewest steps, those that read the
/// remaining tokens one by one included.
fn prefill_step(prompt: u64, longest: u64) -> u64 {
    let lengths = 1..=longest.min(prompt).clamp(1, MAX_PREFILL_STEP);
    lengths.rev().min_by_key(|length| prompt / length + prompt % length).unwrap_or(1)
}

/// Generates tokens with the decoder at `path` on this machine's CPU, with the threads and the engine of `site`.
///
/// The prompt is read in steps of [`GenerateOptions::prompt_step`] tokens, and the rest token by token. If `options` do not give the
/// context, it is as long as these tokens need.
///
/// # Errors
/// If the model is no decoder or cannot be computed, or the generation is cancelled before the first token.
pub fn generate(
    path: &Path,
    options: &ModelOptions,
    site: &SiteOptions,
    generate: &GenerateOptions,
    events: &Events,
) -> Result<Generation, Error> {
    generate.check()?;
    site.check()?;
    let (prompt, tokens) = (generate.prompt_ids.len() as u64, generate.tokens as u64);
    let prefill = generate.prompt_step.or(options.prompt).unwrap_or_else(|| prefill_step(prompt, MAX_PREFILL_STEP));
    let context = options.context.unwrap_or_else(|| prompt.saturating_add(tokens - 1));
    let with_step = |step| ModelOptions { context: Some(context), prompt: Some(step), ..options.clone() };
    let model = Model::open(path, &with_step(1))?;
    events.notices(&model.notices);
    let threads = site.threads.unwrap_or(1);
    Oversubscribed::here(threads).iter().for_each(|warning| events.notice(warning));
    let engine = site.engine_options().start(threads as usize).map_err(Error::failed)?;
    let watch = RunWatch::start(events);
    watch.tell("loading the model");
    let mut interfaces = Interfaces { prefill: None, decode: StepInterface::of(&model)? };
    let engine = if prefill == 1 { engine } else { engine.sharing_weights().unwrap_or(engine) };
    let mut steps = LocalSteps::load(&model, engine.as_ref())?;
    if prefill != 1 {
        let of_prompt = Model::open(path, &with_step(prefill))?;
        let interface = StepInterface::of(&of_prompt)?;
        // The file may fix the size of a step.
        if interface.step > 1 {
            steps.load_prefill(&of_prompt, engine.as_ref())?;
            interfaces.prefill = Some(interface);
        }
    }
    watch.tell_measured("generating tokens");
    interfaces.check(generate)?;
    warm_up(&mut steps, &interfaces, generate)?;
    run(&mut steps, &interfaces, generate, events, &mut sampled(generate))
}

/// Makes a token of logits, or none to end.
type Select<'a> = dyn FnMut(&[f64]) -> Result<Option<u64>, Error> + 'a;

/// Selects tokens as `options` say.
fn sampled(options: &GenerateOptions) -> impl FnMut(&[f64]) -> Result<Option<u64>, Error> {
    let (top_k, mut random) = (options.top_k, fastrand::Rng::with_seed(options.seed));
    move |logits| sample(logits, top_k, &mut random).map(Some)
}

impl PlannedModel {
    /// Generates tokens with the plan on its agents.
    ///
    /// # Errors
    /// As of [`Site::generate`].
    pub fn generate(&self, options: &GenerateOptions) -> Result<Generation, Error> {
        self.site.generate(&self.model, &self.plan, options)
    }
}

impl Site {
    /// Generates tokens with `plan` of `model`, a decoder, on the agents, and compares them with those of one device:
    /// [`Generation::is_equal`].
    ///
    /// # Errors
    /// If the model is no decoder, an agent fails, or the generation is cancelled before the first token.
    pub fn generate(&self, model: &Model, plan: &Plan, options: &GenerateOptions) -> Result<Generation, Error> {
        options.check()?;
        let events = &self.events;
        let mut interfaces = Interfaces { prefill: None, decode: StepInterface::of(model)? };
        interfaces.check(options)?;
        if plan.model.states != model.states {
            let what = "the plan does not keep the states of the model on its agents: make it again";
            return Err(Error::BadInput(what.into()));
        }
        let mut prefill = self.prefill(model, plan, options)?;
        interfaces.prefill = prefill.as_ref().map(|prefill| prefill.interface.clone());
        let mut deployed = match self.deploy_warm((model, plan), prefill.as_ref(), &interfaces, options) {
            Err(error) if is_optional(prefill.as_ref(), options) && !matches!(error, Error::Cancelled) => {
                self.notice_no_prefill(&error);
                (prefill, interfaces.prefill) = (None, None);
                self.deploy_warm((model, plan), None, &interfaces, options)?
            }
            deployed => deployed?,
        };
        let longer = prefill.map(|prefill| prefill.model);
        let mut generation = {
            let watch = RunWatch::start(events);
            watch.tell("generating tokens");
            run(&mut deployed, &interfaces, options, events, &mut sampled(options))?
        };
        (generation.exchanges, generation.exchanged_bytes) = deployed.exchanges();
        drop(deployed);
        if options.no_check || generation.tokens.len() < options.tokens {
            return Ok(generation);
        }
        let watch = RunWatch::start(events);
        watch.tell("generating the tokens on this machine, to compare");
        let engines = reference_engines(self, plan);
        let load = |engine: &EngineOptions| {
            let engine = engine.start(1).map_err(Error::failed)?;
            let sharing = longer.as_ref().and_then(|_| engine.sharing_weights());
            let engine = sharing.unwrap_or(engine);
            let mut steps = LocalSteps::load(model, engine.as_ref())?;
            longer.iter().try_for_each(|longer| steps.load_prefill(longer, engine.as_ref()))?;
            Ok::<_, Error>(steps)
        };
        let loaded = engines.iter().map(load).reduce(|one, other| one.or(other));
        let mut steps = match loaded {
            Some(Ok(steps)) => steps,
            failed => {
                let why = failed.and_then(Result::err).map_or(String::new(), |error| format!(": {error}"));
                events
                    .notice(format_args!("the tokens were not checked: this machine does not compute the model{why}"));
                return Ok(generation);
            }
        };
        // What interrupts the comparison does not decide it.
        let uncancelled = |error: Error| match error {
            Error::Cancelled if !events.is_unwanted() => Ok(()),
            error => Err(error),
        };
        let tolerance = Tolerance::of(&model.import.graph);
        let mut check = TokenCheck::new(&generation.tokens, tolerance, options.top_k, options.seed);
        run(&mut steps, &interfaces, options, events, &mut |logits| check.accept(logits))
            .map(drop)
            .or_else(uncancelled)?;
        let TokenCheck { accepted, near_ties, wanted, .. } = check;
        if let (Some(found), Some(wanted)) = (generation.tokens.get(accepted), wanted) {
            events.notice(format_args!("token {accepted} of the plan is {found}, but {wanted} on one device"));
        }
        let is_equal = match wanted {
            Some(_) => Some(false),
            None => (accepted == generation.tokens.len()).then_some(true),
        };
        Ok(Generation { is_equal, near_ties, ..generation })
    }

    /// The step of several tokens in which `plan` of `model` reads the prompt; `None` if it is read token by token.
    fn prefill(&self, model: &Model, plan: &Plan, options: &GenerateOptions) -> Result<Option<Prefill>, Error> {
        let prompt = options.prompt_ids.len() as u64;
        let step = options.prompt_step.unwrap_or_else(|| prefill_step(prompt, longest_step(plan)));
        if step <= 1 || step > prompt {
            return Ok(None);
        }
        match Prefill::of(model, plan, step) {
            Err(error) if options.prompt_step.is_none() => {
                self.notice_no_prefill(&error);
                Ok(None)
            }
            Ok(None) => {
                self.notice_no_prefill(&"the file fixes the number of tokens of a step");
                Ok(None)
            }
            prefill => prefill,
        }
    }

    fn notice_no_prefill(&self, why: &dyn std::fmt::Display) {
        self.events.notice(format_args!("the prompt is read token by token: {why}"));
    }

    /// Loads `plan` of `model` on its agents and computes a step of each phase.
    fn deploy_warm<'a>(
        &'a self,
        (model, plan): (&'a Model, &Plan),
        prefill: Option<&Prefill>,
        interfaces: &Interfaces,
        options: &GenerateOptions,
    ) -> Result<Deployed<'a>, Error> {
        let watch = RunWatch::start(&self.events);
        watch.tell("loading the plan");
        let mut deployed = self.deploy_phases(model, plan, prefill)?;
        warm_up(&mut deployed, interfaces, options)?;
        Ok(deployed)
    }
}

/// Whether the prompt can be read without `prefill`, which no option asks for.
fn is_optional(prefill: Option<&Prefill>, options: &GenerateOptions) -> bool {
    prefill.is_some() && options.prompt_step.is_none()
}

/// The steps of a sequence.
struct Interfaces {
    /// Steps of several tokens, which read the prompt.
    prefill: Option<StepInterface>,
    decode: StepInterface,
}

impl Interfaces {
    /// Checks that tokens are generated one by one, that those of the prompt exist, and that the context has room for it
    /// and all new ones but the last, which no step reads.
    fn check(&self, options: &GenerateOptions) -> Result<(), Error> {
        if self.decode.step != 1 {
            let what = format!("a step has {} tokens, and one is generated at a time", self.decode.step);
            return Err(Error::BadInput(format!("{what}: read the model, or plan it, with option `prompt` 1").into()));
        }
        let of_vocabulary = |id: &&u64| self.decode.vocabulary.is_some_and(|vocabulary| **id >= vocabulary);
        if let (Some(id), Some(vocabulary)) = (options.prompt_ids.iter().find(of_vocabulary), self.decode.vocabulary) {
            let what = format!("option `prompt_ids`: there is no token {id}: the model has {vocabulary}");
            return Err(Error::BadInput(what.into()));
        }
        let Some(context) = self.decode.context else { return Ok(()) };
        let prompt = options.prompt_ids.len();
        let needed = prompt.saturating_add(options.tokens - 1);
        if needed <= context {
            return Ok(());
        }
        let what = format!("a prompt of {prompt} tokens and {} new ones need a context of {needed}", options.tokens);
        let advice = format!("it has {context}: read the model, or plan it, with a longer one by option `context`");
        Err(Error::BadInput(format!("{what}, but {advice}").into()))
    }
}

/// Computes the first step of each phase: what an engine does once is not the prompt's time.
fn warm_up(steps: &mut dyn Steps, interfaces: &Interfaces, options: &GenerateOptions) -> Result<(), Error> {
    let prompt = &options.prompt_ids;
    let Interfaces { prefill, decode } = interfaces;
    steps.step(Phase::Decode, &decode.inputs(0, &prompt[..1])?, false)?;
    if let Some((prefill, chunk)) = prefill.as_ref().and_then(|prefill| Some((prefill, prompt.get(..prefill.step)?))) {
        steps.step(Phase::Prefill, &prefill.inputs(0, chunk)?, false)?;
    }
    Ok(())
}

/// Reads the prompt, then generates the tokens that `select` makes of logits, until it makes none.
fn run(
    steps: &mut dyn Steps,
    interfaces: &Interfaces,
    options: &GenerateOptions,
    events: &Events,
    select: &mut Select<'_>,
) -> Result<Generation, Error> {
    interfaces.check(options)?;
    let decode = &interfaces.decode;
    let stop = events.stop(None, KEPT);
    let mut chunks: Vec<(Phase, &StepInterface, &[u64])> = Vec::new();
    let mut left = &options.prompt_ids[..];
    if let Some(prefill) = &interfaces.prefill {
        let in_steps = left.chunks_exact(prefill.step);
        left = in_steps.remainder();
        chunks.extend(in_steps.map(|chunk| (Phase::Prefill, prefill, chunk)));
    }
    chunks.extend(left.chunks(1).map(|chunk| (Phase::Decode, decode, chunk)));
    let begin = Instant::now();
    let (mut past, mut logits) = (0, Vec::new());
    for (phase, interface, chunk) in chunks {
        if stop.is_requested() {
            return Err(Error::Cancelled);
        }
        let outputs = steps.step(phase, &interface.inputs(past, chunk)?, past > 0)?;
        logits = interface.logits(&outputs)?;
        past += chunk.len();
    }
    let mut tokens: Vec<u64> = select(&logits)?.into_iter().collect();
    let prefill = Micros::from(begin.elapsed());
    let mut times = Vec::new();
    let mut is_interrupted = false;
    while let Some(last) = tokens.last().copied().filter(|_| tokens.len() < options.tokens) {
        let begin = Instant::now();
        is_interrupted = stop.is_requested();
        if is_interrupted {
            break;
        }
        let computed = steps.step(Phase::Decode, &decode.inputs(past, &[last])?, true);
        let outputs = match computed {
            Err(Error::Cancelled) if !events.is_unwanted() => {
                is_interrupted = true;
                break;
            }
            computed => computed?,
        };
        past += 1;
        let Some(token) = select(&decode.logits(&outputs)?)? else { break };
        tokens.push(token);
        times.push(Micros::from(begin.elapsed()));
    }
    if is_interrupted {
        events.check()?;
        events.notice(format_args!("interrupted after {} of {} tokens", tokens.len(), options.tokens));
    }
    Ok(Generation {
        tokens,
        prompt_tokens: options.prompt_ids.len(),
        prefill_us: prefill,
        token_us: Latencies::of(&times),
        times_us: times,
        exchanges: 0,
        exchanged_bytes: 0,
        is_equal: None,
        near_ties: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_read_in_few_steps() {
        for (prompt, longest, step) in [
            (1, 128, 1),
            (5, 128, 5),
            (128, 128, 128),
            (129, 128, 128),
            (193, 128, 96),
            (200, 500, 100),
            (5, 2, 2),
            (7, 0, 1),
        ] {
            assert_eq!(prefill_step(prompt, longest), step, "{prompt} {longest}");
        }
    }
}
