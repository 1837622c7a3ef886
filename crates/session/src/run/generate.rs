//! Generation: a decoder reads the tokens of a prompt, then computes token after token, each from those before.
//!
//! The states stay where they are read: on the agents of a plan, or in the memory of this process.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use edgecut_agent::{Oversubscribed, protocol::phase::Phase};
use edgecut_graph::{
    DeviceName,
    units::{Micros, counted},
};
use edgecut_plan::{Plan, file::DevicePlan, pipeline_depth};
use serde::Deserialize;

use super::{
    RunError,
    deployed::Deployed,
    failover::{Cause, Failover, Interruption},
    generation::{Generation, Generations},
    options::RunOptions,
    padding_check::UnpaddedReference,
    planned::PlannedModel,
    progress::RunWatch,
    replan::replan,
    sampling::sample,
    sequence::{Interfaces, PlanSteps, Sequence, warm_up},
    sequences::{Drawn, extend_all},
    steps::{LocalSteps, SequenceSteps},
};
use crate::{
    Error, Event, Events, Model, ModelOptions, Site, SiteOptions,
    decoder::{
        interface::StepInterface,
        prefill::{LongStep, Prefill, PromptSteps, fewest_steps, planned_step},
    },
    profile::DEFAULT_FOLDER,
};

/// What is generated, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    /// Number of tokens to generate in each sequence.
    pub tokens: usize,
    /// The tokens of each sequence's prompt; at least one each.
    pub prompts: Vec<Vec<u64>>,
    /// Number of sequences at a time; there are as many at least, with the prompts in turn. By default one without a plan, and with one
    /// as many as there are prompts and the plan has inputs in flight.
    pub sequences: Option<u32>,
    /// Tokens of a step that reads the prompt. By default [`ModelOptions::prompt`], or at most 128, of a plan as many as its memory
    /// limits leave room for.
    pub prompt_step: Option<u64>,
    /// Each token is drawn from this number of tokens with the largest logits, by their softmax. With 1, the largest is taken.
    pub top_k: usize,
    /// The seed of these draws of the first sequence; each has the next one.
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
            prompts: Vec::new(),
            sequences: None,
            prompt_step: None,
            top_k: 1,
            seed: 0,
            no_check: false,
            replan: None,
            profile: PathBuf::from(DEFAULT_FOLDER),
        }
    }
}

impl GenerateOptions {
    fn check(&self) -> Result<(), Error> {
        let what = match self {
            GenerateOptions { tokens: 0, .. } => "option `tokens`: expected at least one token",
            GenerateOptions { prompts, .. } if prompts.is_empty() || prompts.iter().any(Vec::is_empty) => {
                "option `prompt_ids`: expected the numbers of at least one token"
            }
            GenerateOptions { prompt_step: Some(0), .. } => "option `prompt`: expected at least one token",
            GenerateOptions { top_k: 0, .. } => "option `top_k`: expected at least one token",
            GenerateOptions { sequences: Some(sequences), .. }
                if !(1..=pipeline_depth::MAX_IN_FLIGHT).contains(sequences) =>
            {
                let most = pipeline_depth::MAX_IN_FLIGHT;
                return Err(Error::BadInput(format!("option `sequences`: expected 1 to {most}").into()));
            }
            _ => return Ok(()),
        };
        Err(Error::BadInput(what.into()))
    }

    /// For failover, tokens are runs.
    fn as_runs(&self, sequences: usize) -> RunOptions {
        let repeat = Some(u32::try_from(self.tokens.saturating_mul(sequences)).unwrap_or(u32::MAX));
        RunOptions { repeat, replan: self.replan, profile: self.profile.clone(), ..RunOptions::default() }
    }

    /// How many sequences `plan` generates at a time.
    fn at_a_time(&self, plan: &Plan) -> usize {
        let in_flight = plan.in_flight.unwrap_or(plan.predicted.in_flight).min(pipeline_depth::MAX_IN_FLIGHT);
        let planned = || self.prompts.len().min(in_flight as usize);
        self.sequences.map_or_else(planned, |sequences| sequences as usize).max(1)
    }

    /// The sequences, of which `at_a_time` are generated at a time, each with nothing generated.
    fn all_sequences(&self, at_a_time: usize, events: &Events) -> Vec<Drawn<'_>> {
        let prompts = self.prompts.iter().cycle().take(at_a_time.max(self.prompts.len())).enumerate();
        let drawn = prompts.map(|(number, prompt)| Drawn {
            sequence: Sequence::new(prompt, self.tokens),
            select: Box::new(self.sampled(number, events)),
        });
        drawn.collect()
    }

    fn prompt_lengths(&self) -> Vec<u64> {
        self.prompts.iter().map(|prompt| prompt.len() as u64).collect()
    }

    /// The tokens of the longest prompt.
    fn longest_prompt(&self) -> &[u64] {
        self.prompts.iter().max_by_key(|prompt| prompt.len()).map_or(&[], Vec::as_slice)
    }

    /// Selects the tokens of sequence `number`, and emits each.
    fn sampled(&self, number: usize, events: &Events) -> impl FnMut(&[f64]) -> Result<Option<u64>, Error> + use<> {
        let (top_k, mut random) = (self.top_k, fastrand::Rng::with_seed(self.seed_of(number)));
        let events = events.clone();
        move |logits| {
            let token = sample(logits, top_k, &mut random)?;
            events.emit(Event::Token { sequence: number, token });
            Ok(Some(token))
        }
    }

    /// The seed of the draws of sequence `number`.
    pub(super) fn seed_of(&self, number: usize) -> u64 {
        self.seed.wrapping_add(number as u64)
    }
}

/// Generates tokens with the decoder at `path` on this machine's CPU, with the threads and the engine of `site`, sequence after sequence.
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
) -> Result<Generations, Error> {
    generate.check()?;
    site.check()?;
    if generate.sequences.is_some_and(|sequences| sequences > 1) {
        let what =
            "option `sequences`: one device generates one sequence at a time; several go through the stages of a plan";
        return Err(Error::BadInput(what.into()));
    }
    let tokens = generate.tokens as u64;
    let prefill = generate
        .prompt_step
        .or(options.prompt)
        .unwrap_or_else(|| fewest_steps(&generate.prompt_lengths(), PromptSteps::MAX_STEP));
    let prompt = generate.longest_prompt();
    let context = options.context.unwrap_or_else(|| (prompt.len() as u64).saturating_add(tokens - 1));
    let with_step = |step| ModelOptions { context: Some(context), prompt: Some(step), ..options.clone() };
    let model = Model::open(path, &with_step(1))?;
    events.notices(&model.notices);
    let threads = site.threads.unwrap_or(1);
    Oversubscribed::here(threads).iter().for_each(|warning| events.notice(warning));
    let engine = site.engine_options().start(threads as usize).map_err(Error::failed)?;
    let watch = RunWatch::start(events);
    watch.tell("loading the model");
    let mut interfaces = Interfaces { prefill: None, decode: StepInterface::of(&model)? };
    generate.prompts.iter().try_for_each(|prompt| interfaces.check(prompt, generate.tokens))?;
    let longer = if prefill == 1 { None } else { Some(Model::open(path, &with_step(prefill))?) };
    let longer = longer.map(|model| Ok::<_, Error>((StepInterface::of(&model)?, model))).transpose()?;
    // The file may fix the size of a step.
    let longer = longer.filter(|(interface, _)| interface.step > 1);
    let reference = |model: &Model, interface: &StepInterface| {
        UnpaddedReference::compute((model, interface), prompt, engine.as_ref(), events)
    };
    let of_decode = reference(&model, &interfaces.decode);
    let of_prefill = longer.as_ref().and_then(|(interface, model)| reference(model, interface));
    let engine = if longer.is_none() { engine } else { engine.sharing_weights().unwrap_or(engine) };
    let mut steps = LocalSteps::load(&model, engine.as_ref())?;
    let decode = (Phase::Decode, &interfaces.decode);
    of_decode.iter().try_for_each(|reference| reference.check(&model, &mut steps, decode))?;
    if let Some((interface, model)) = longer {
        steps.load_prefill(&model, engine.as_ref())?;
        let mut checks = of_prefill.iter();
        match checks.try_for_each(|reference| reference.check(&model, &mut steps, (Phase::Prefill, &interface))) {
            Err(error) if generate.prompt_step.is_none() && options.prompt.is_none() => {
                notice_no_prefill(events, &error)
            }
            checked => {
                checked?;
                interfaces.prefill = Some(interface);
            }
        }
    }
    watch.tell_measured("generating tokens");
    warm_up(&mut steps, &interfaces, prompt)?;
    let mut drawn = generate.all_sequences(1, events);
    let begin = Instant::now();
    for Drawn { sequence, select } in &mut drawn {
        match sequence.extend(&mut steps, &interfaces, events, select) {
            Err(Error::Cancelled) if !events.is_unwanted() => break,
            extended => extended?,
        }
    }
    let elapsed = Micros::from(begin.elapsed());
    let sequences = generated(drawn, events)?;
    Ok(Generations::of(sequences, 1, elapsed))
}

/// What was generated, if it is anything; says how much is missing.
fn generated(drawn: Vec<Drawn<'_>>, events: &Events) -> Result<Vec<Generation>, Error> {
    let wanted: usize = drawn.iter().map(|drawn| drawn.sequence.wanted()).sum();
    let sequences: Vec<Generation> = drawn.into_iter().map(|drawn| Generation::of(drawn.sequence)).collect();
    match sequences.iter().map(|sequence| sequence.tokens.len()).sum::<usize>() {
        0 => return Err(Error::Cancelled),
        found if found < wanted => events.notice(format_args!("interrupted after {found} of {wanted} tokens")),
        _ => {}
    }
    Ok(sequences)
}

impl PlannedModel {
    /// Generates tokens with the plan on its agents.
    ///
    /// # Errors
    /// As of [`Site::generate`].
    pub fn generate(&self, options: &GenerateOptions) -> Result<Generations, Error> {
        self.site.generate(&self.model, &self.plan, options)
    }
}

impl Site {
    /// Generates tokens with `plan` of `model`, a decoder, on the agents, and compares them with those of one device:
    /// [`Generation::is_equal`]. Several sequences go through the stages of the plan at a time. If an agent is lost, another plan may
    /// continue: [`GenerateOptions::replan`].
    ///
    /// # Errors
    /// If the model is no decoder, an agent fails and no other plan continues, or the generation is cancelled before the first
    /// token.
    pub fn generate(&self, model: &Model, plan: &Plan, options: &GenerateOptions) -> Result<Generations, Error> {
        options.check()?;
        let interfaces = Interfaces { prefill: None, decode: StepInterface::of(model)? };
        options.prompts.iter().try_for_each(|prompt| interfaces.check(prompt, options.tokens))?;
        if plan.model.states != model.states {
            let what = "the plan does not keep the states of the model on its agents: make it again";
            return Err(Error::BadInput(what.into()));
        }
        if !options.no_check {
            self.check_padding((model, &interfaces.decode), plan, options.longest_prompt())?;
        }
        let mut at_a_time = options.at_a_time(plan);
        let mut drawn = options.all_sequences(at_a_time, &self.events);
        let as_runs = options.as_runs(drawn.len());
        let (mut plan, mut failover) = (plan.clone(), Failover::new(&as_runs, plan));
        let (mut is_replanned, mut elapsed) = (false, Micros::ZERO);
        let steps = loop {
            let before = tokens_of(&drawn);
            let (error, cause) = match self.extend((model, &plan), options, at_a_time, &mut drawn, &mut elapsed) {
                Ok(steps) => break Some(steps),
                Err(failed) => failed,
            };
            let is_kept = tokens_of(&drawn) > 0 && !self.events.is_unwanted();
            let cause = cause.as_deref();
            // Each sequence has its own states.
            if at_a_time > 1 && cause.is_some_and(|cause| cause.memory().is_some()) {
                at_a_time -= 1;
                self.events.notice(format_args!("{error}; going on with {} at a time", counted(at_a_time, "sequence")));
                continue;
            }
            let agent = cause.and_then(RunError::agent).cloned();
            let failure = match error {
                Error::Agent(failure) => failure.to_string(),
                // Cancelled while another plan is loaded: the tokens so far are the result.
                Error::Cancelled if is_kept => break None,
                other => {
                    self.notice_tokens(&drawn);
                    return Err(other);
                }
            };
            let finished = (tokens_of(&drawn) - before) as u64;
            let interruption = Interruption { finished, failure: failure.clone(), cause: Cause::Agent(agent) };
            if !failover.goes_on(interruption) {
                self.notice_tokens(&drawn);
                return Err(Error::Agent(failure.into()));
            }
            self.events.notice(format_args!("{failure}; planning again for the servers that answer"));
            is_replanned = true;
            let rest = failover.without_blamed(&self.cluster);
            let again = replan(&self.events, &options.profile, model, &plan, &rest, failover.may_split);
            plan = self.runtime.block_on(again).map_err(|error| {
                self.notice_tokens(&drawn);
                error.at(format!("{failure}; no other plan"))
            })?;
            at_a_time = at_a_time.min(options.at_a_time(&plan));
            let names = DeviceName::join(plan.used_devices().map(DevicePlan::device_name), ", ");
            self.events.notice(format_args!("{} tokens left, on {names}", failover.left));
        };
        let sequences = generated(drawn, &self.events)?;
        let mut generations = Generations::of(sequences, at_a_time, elapsed);
        let Some(steps) = steps else { return Ok(generations) };
        generations.add_figures(&steps, (!is_replanned).then_some(&plan));
        let is_complete = generations.sequences.iter().all(|sequence| sequence.tokens.len() == options.tokens);
        if is_complete && !options.no_check {
            self.check_tokens(model, &plan, options, &steps, &mut generations.sequences)?;
        }
        Ok(generations)
    }

    /// Continues the sequences with `plan` of `model` on the agents, `at_a_time`, and adds the time that they take to `elapsed`. An
    /// error comes with what ended the runs, if any were begun.
    fn extend(
        &self,
        (model, plan): (&Model, &Plan),
        options: &GenerateOptions,
        at_a_time: usize,
        drawn: &mut [Drawn<'_>],
        elapsed: &mut Micros,
    ) -> Result<PlanSteps, (Error, Option<Arc<RunError>>)> {
        let deployed = self.deploy_to_generate(model, plan, options, at_a_time);
        let (deployed, prefill, interfaces) = deployed.map_err(|error| (error, None))?;
        let watch = RunWatch::start(&self.events);
        watch.tell("generating tokens");
        let begin = Instant::now();
        let extended = extend_all(&deployed, &interfaces, &self.events, at_a_time, drawn);
        *elapsed += Micros::from(begin.elapsed());
        extended.map_err(|error| (error, deployed.failure()))?;
        Ok(PlanSteps { longer: prefill.map(|prefill| prefill.step.model), interfaces, exchanges: deployed.exchanges() })
    }

    /// Loads `plan` of `model` for `at_a_time` sequences in flight, with steps of several tokens if it can have them.
    fn deploy_to_generate(
        &self,
        model: &Model,
        plan: &Plan,
        options: &GenerateOptions,
        at_a_time: usize,
    ) -> Result<(Deployed, Option<Prefill>, Interfaces), Error> {
        let mut prefill = self.prefill(model, plan, options, at_a_time)?;
        let interface = prefill.as_ref().map(|prefill| prefill.step.interface.clone());
        let mut interfaces = Interfaces { prefill: interface, decode: StepInterface::of(model)? };
        let warm = |prefill: Option<&Prefill>, interfaces: &Interfaces| {
            let watch = RunWatch::start(&self.events);
            watch.tell("loading the plan");
            let deployed = self.deploy_phases(model, plan, prefill, at_a_time)?;
            warm_up(&mut SequenceSteps { deployed: &deployed, sequence: 0 }, interfaces, options.longest_prompt())?;
            Ok(deployed)
        };
        let deployed = match warm(prefill.as_ref(), &interfaces) {
            Err(error) if is_optional(prefill.as_ref(), options) && !matches!(error, Error::Cancelled) => {
                self.notice_no_prefill(&error);
                (prefill, interfaces.prefill) = (None, None);
                warm(None, &interfaces)?
            }
            deployed => deployed?,
        };
        Ok((deployed, prefill, interfaces))
    }

    /// What is left of sequences that cannot go on.
    fn notice_tokens(&self, drawn: &[Drawn<'_>]) {
        let begun = drawn.iter().enumerate().filter(|(_, drawn)| !drawn.sequence.tokens.is_empty());
        for (number, Drawn { sequence, .. }) in begun {
            let of = if drawn.len() > 1 { format!(" in sequence {number}") } else { String::new() };
            let tokens: Vec<String> = sequence.tokens.iter().map(u64::to_string).collect();
            self.events.notice(format_args!("generated until then{of}: {}", tokens.join(",")));
        }
    }

    /// The step of several tokens in which `plan` of `model` reads the prompts; `None` if they are read token by token.
    fn prefill(
        &self,
        model: &Model,
        plan: &Plan,
        options: &GenerateOptions,
        at_a_time: usize,
    ) -> Result<Option<Prefill>, Error> {
        let step = options.prompt_step.unwrap_or_else(|| planned_step(&options.prompt_lengths(), plan, at_a_time));
        if step <= 1 || step > options.longest_prompt().len() as u64 {
            return Ok(None);
        }
        let prefill = Prefill::of(model, plan, step).and_then(|prefill| {
            let checked = prefill.as_ref().filter(|_| !options.no_check).map_or(Ok(()), |prefill| {
                let LongStep { model, interface } = &prefill.step;
                self.check_padding((model, interface), plan, options.longest_prompt())
            });
            checked.map(|()| prefill)
        });
        match prefill {
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
        notice_no_prefill(&self.events, why);
    }
}

fn notice_no_prefill(events: &Events, why: &dyn std::fmt::Display) {
    events.notice(format_args!("the prompt is read token by token: {why}"));
}

/// The number of tokens that were generated.
fn tokens_of(drawn: &[Drawn<'_>]) -> usize {
    drawn.iter().map(|drawn| drawn.sequence.tokens.len()).sum()
}

/// Whether the prompt can be read without `prefill`, which no option asks for.
fn is_optional(prefill: Option<&Prefill>, options: &GenerateOptions) -> bool {
    prefill.is_some() && options.prompt_step.is_none()
}
