//! Generation: a decoder reads the tokens of a prompt, then computes token after token, each from those before.
//!
//! The states stay where they are read: on the agents of a plan, or in the memory of this process.

use std::path::{Path, PathBuf};

use edgecut_agent::{
    Oversubscribed,
    results::{Latencies, Tolerance},
};
use edgecut_engine::EngineOptions;
use edgecut_graph::{DeviceName, units::Micros};
use edgecut_plan::{Plan, file::DevicePlan};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{
    deployed::Deployed,
    execution::reference_engines,
    failover::{Cause, Failover, Interruption},
    options::RunOptions,
    planned::PlannedModel,
    progress::RunWatch,
    replan::replan,
    sampling::sample,
    sequence::{Interfaces, Select, Sequence, warm_up},
    steps::LocalSteps,
    token_check::TokenCheck,
};
use crate::{
    Error, Event, Events, Model, ModelOptions, Site, SiteOptions,
    decoder::{
        interface::StepInterface,
        prefill::{Prefill, PromptSteps},
    },
    profile::DEFAULT_FOLDER,
};

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
    /// Whether to plan again when an agent is lost, and continue the sequence on the servers that answer. By default, only if
    /// there is a token.
    pub replan: Option<bool>,
    /// Folder of the profiles that the plan was made from, for replanning.
    pub profile: PathBuf,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions {
            tokens: 64,
            prompt_ids: Vec::new(),
            prompt_step: None,
            top_k: 1,
            seed: 0,
            no_check: false,
            replan: None,
            profile: PathBuf::from(DEFAULT_FOLDER),
        }
    }
}

/// Tokens that were generated, and their times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generation {
    pub tokens: Vec<u64>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// From the start of the prompt to the first token.
    pub prefill_us: Micros,
    /// Of each token after the first.
    #[serde(skip)]
    pub times_us: Vec<Micros>,
    /// Summary of these times; `None` if there is only one token.
    pub token_us: Option<Latencies>,
    /// What the plan predicts; `None` without a plan, or if another one went on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<PredictedTimes>,
    /// Tensors that go from one server to another for a token.
    pub exchanges: usize,
    /// Their bytes.
    pub exchanged_bytes: u64,
    /// Whether the tokens are those of one device, near ties included; `None` if they were not compared.
    pub is_equal: Option<bool>,
    /// Tokens that differ from those of one device after the same tokens, but whose logits there are within tolerance of its choice.
    pub near_ties: usize,
}

/// The times that a plan predicts for a generation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PredictedTimes {
    /// Of a token after the first, at the end of the context.
    pub token_us: Micros,
    /// To the first token; `None` if the plan says nothing of such steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_us: Option<Micros>,
}

impl PredictedTimes {
    /// What `plan` says of a prompt that is read in `steps`.
    fn of(plan: &Plan, steps: PromptSteps) -> PredictedTimes {
        let token_us = plan.predicted.latency_us;
        let of_step = plan.prefill.filter(|prefill| prefill.step == steps.step).map(|prefill| prefill.step_us);
        let of_step = if steps.step == 1 { Some(token_us) } else { of_step };
        PredictedTimes { token_us, prefill_us: of_step.map(|time| Micros(steps.sum(time.0, token_us.0))) }
    }
}

impl Generation {
    fn of(sequence: Sequence<'_>, options: &GenerateOptions) -> Generation {
        Generation {
            tokens: sequence.tokens,
            prompt_tokens: options.prompt_ids.len(),
            prefill_us: sequence.prefill,
            token_us: Latencies::of(&sequence.times),
            times_us: sequence.times,
            predicted: None,
            exchanges: 0,
            exchanged_bytes: 0,
            is_equal: None,
            near_ties: 0,
        }
    }
}

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

    /// For failover, tokens are runs.
    fn as_runs(&self) -> RunOptions {
        let repeat = Some(u32::try_from(self.tokens).unwrap_or(u32::MAX));
        RunOptions { repeat, replan: self.replan, profile: self.profile.clone(), ..RunOptions::default() }
    }
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
    let prefill = generate
        .prompt_step
        .or(options.prompt)
        .unwrap_or_else(|| PromptSteps::fewest(prompt, PromptSteps::MAX_STEP).step);
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
    interfaces.check(&generate.prompt_ids, generate.tokens)?;
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
    warm_up(&mut steps, &interfaces, &generate.prompt_ids)?;
    let mut sequence = Sequence::new(&generate.prompt_ids, generate.tokens);
    sequence.extend(&mut steps, &interfaces, events, &mut sampled(generate, events))?;
    Ok(Generation::of(sequence, generate))
}

/// Selects tokens as `options` say, and emits each.
fn sampled(options: &GenerateOptions, events: &Events) -> impl FnMut(&[f64]) -> Result<Option<u64>, Error> {
    let (top_k, mut random) = (options.top_k, fastrand::Rng::with_seed(options.seed));
    move |logits| {
        let token = sample(logits, top_k, &mut random)?;
        events.emit(Event::Token(token));
        Ok(Some(token))
    }
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
    /// [`Generation::is_equal`]. If an agent is lost, another plan may continue: [`GenerateOptions::replan`].
    ///
    /// # Errors
    /// If the model is no decoder, an agent fails and no other plan continues, or the generation is cancelled before the first
    /// token.
    pub fn generate(&self, model: &Model, plan: &Plan, options: &GenerateOptions) -> Result<Generation, Error> {
        options.check()?;
        Interfaces { prefill: None, decode: StepInterface::of(model)? }.check(&options.prompt_ids, options.tokens)?;
        if plan.model.states != model.states {
            let what = "the plan does not keep the states of the model on its agents: make it again";
            return Err(Error::BadInput(what.into()));
        }
        let (mut sequence, mut select) =
            (Sequence::new(&options.prompt_ids, options.tokens), sampled(options, &self.events));
        let as_runs = options.as_runs();
        let (mut plan, mut failover) = (plan.clone(), Failover::new(&as_runs, plan));
        let mut is_replanned = false;
        let generated = loop {
            let before = sequence.tokens.len();
            let (error, agent) = match self.extend(model, &plan, options, &mut sequence, &mut select) {
                Ok(generated) => break generated,
                Err(failed) => failed,
            };
            let is_kept = !sequence.tokens.is_empty() && !self.events.is_unwanted();
            let failure = match error {
                Error::Agent(failure) => failure.to_string(),
                // Cancelled while another plan is loaded: the tokens so far are the result.
                Error::Cancelled if is_kept => return Ok(Generation::of(sequence, options)),
                other => {
                    self.notice_tokens(&sequence);
                    return Err(other);
                }
            };
            let finished = (sequence.tokens.len() - before) as u64;
            let interruption = Interruption { finished, failure: failure.clone(), cause: Cause::Agent(agent) };
            if !failover.goes_on(interruption) {
                self.notice_tokens(&sequence);
                return Err(Error::Agent(failure.into()));
            }
            self.events.notice(format_args!("{failure}; planning again for the servers that answer"));
            is_replanned = true;
            let rest = failover.without_blamed(&self.cluster);
            let again = replan(&self.events, &options.profile, model, &plan, &rest, failover.may_split);
            plan = self.runtime.block_on(again).map_err(|error| {
                self.notice_tokens(&sequence);
                error.at(format!("{failure}; no other plan"))
            })?;
            let names = DeviceName::join(plan.used_devices().map(DevicePlan::device_name), ", ");
            self.events.notice(format_args!("{} tokens left, on {names}", failover.left));
        };
        let (exchanges, exchanged_bytes) = generated.exchanges;
        let steps = PromptSteps {
            prompt: options.prompt_ids.len() as u64,
            step: generated.interfaces.prefill.as_ref().map_or(1, |interface| interface.step as u64),
        };
        let predicted = (!is_replanned).then(|| PredictedTimes::of(&plan, steps));
        let generation = Generation::of(sequence, options);
        let generation = Generation { predicted, exchanges, exchanged_bytes, ..generation };
        if options.no_check || generation.tokens.len() < options.tokens {
            return Ok(generation);
        }
        self.checked(model, &plan, options, &generated, generation)
    }

    /// Continues `sequence` with `plan` of `model` on the agents. An error comes with the agent that failed, if it is known.
    fn extend(
        &self,
        model: &Model,
        plan: &Plan,
        options: &GenerateOptions,
        sequence: &mut Sequence<'_>,
        select: &mut Select<'_>,
    ) -> Result<Generated, (Error, Option<SmolStr>)> {
        let deployed = self.deploy_to_generate(model, plan, options);
        let (mut deployed, prefill, interfaces) = deployed.map_err(|error| (error, None))?;
        let watch = RunWatch::start(&self.events);
        watch.tell("generating tokens");
        let extended = sequence.extend(&mut deployed, &interfaces, &self.events, select);
        extended.map_err(|error| (error, deployed.failed_agent()))?;
        Ok(Generated { longer: prefill.map(|prefill| prefill.step.model), interfaces, exchanges: deployed.exchanges() })
    }

    /// Loads `plan` of `model`, with steps of several tokens if it can have them.
    fn deploy_to_generate(
        &self,
        model: &Model,
        plan: &Plan,
        options: &GenerateOptions,
    ) -> Result<(Deployed, Option<Prefill>, Interfaces), Error> {
        let mut prefill = self.prefill(model, plan, options)?;
        let interface = prefill.as_ref().map(|prefill| prefill.step.interface.clone());
        let mut interfaces = Interfaces { prefill: interface, decode: StepInterface::of(model)? };
        let deployed = match self.deploy_warm((model, plan), prefill.as_ref(), &interfaces, options) {
            Err(error) if is_optional(prefill.as_ref(), options) && !matches!(error, Error::Cancelled) => {
                self.notice_no_prefill(&error);
                (prefill, interfaces.prefill) = (None, None);
                self.deploy_warm((model, plan), None, &interfaces, options)?
            }
            deployed => deployed?,
        };
        Ok((deployed, prefill, interfaces))
    }

    /// What is left of a sequence that cannot go on.
    fn notice_tokens(&self, sequence: &Sequence<'_>) {
        if !sequence.tokens.is_empty() {
            let tokens: Vec<String> = sequence.tokens.iter().map(u64::to_string).collect();
            self.events.notice(format_args!("generated until then: {}", tokens.join(",")));
        }
    }

    /// Compares the tokens of `plan` with those of one device.
    fn checked(
        &self,
        model: &Model,
        plan: &Plan,
        options: &GenerateOptions,
        Generated { longer, interfaces, .. }: &Generated,
        generation: Generation,
    ) -> Result<Generation, Error> {
        let events = &self.events;
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
        let mut accept = |logits: &[f64]| check.accept(logits);
        let mut again = Sequence::new(&options.prompt_ids, options.tokens);
        again.extend(&mut steps, interfaces, events, &mut accept).or_else(uncancelled)?;
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
        let step = options.prompt_step.unwrap_or_else(|| PromptSteps::planned(prompt, plan).step);
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
    fn deploy_warm(
        &self,
        (model, plan): (&Model, &Plan),
        prefill: Option<&Prefill>,
        interfaces: &Interfaces,
        options: &GenerateOptions,
    ) -> Result<Deployed, Error> {
        let watch = RunWatch::start(&self.events);
        watch.tell("loading the plan");
        let mut deployed = self.deploy_phases(model, plan, prefill)?;
        warm_up(&mut deployed, interfaces, &options.prompt_ids)?;
        Ok(deployed)
    }
}

/// How a plan has generated tokens.
struct Generated {
    /// The model with steps of several tokens, if the prompt was read in such.
    longer: Option<Model>,
    interfaces: Interfaces,
    /// Transfers between servers for a token, and their bytes.
    exchanges: (usize, u64),
}

/// Whether the prompt can be read without `prefill`, which no option asks for.
fn is_optional(prefill: Option<&Prefill>, options: &GenerateOptions) -> bool {
    prefill.is_some() && options.prompt_step.is_none()
}
