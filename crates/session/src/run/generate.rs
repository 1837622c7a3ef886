//! Generation: a decoder reads the tokens of a prompt, then computes token after token, each from those before.
//!
//! The states stay where they are read: on the agents of a plan, or in the memory of this process.

use std::{collections::BTreeMap, path::Path, time::Instant};

use edgecut_agent::Oversubscribed;
use edgecut_engine::{Engine, EngineOptions, Executable, statistics::Statistics};
use edgecut_graph::{Graph, TensorData, TensorId, units::Micros};
use edgecut_plan::Plan;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{deployed::Deployed, execution::reference_engines, planned::PlannedModel, progress::RunWatch};
use crate::{
    Error, Events, Model, ModelOptions, Site, SiteOptions, decoder::interface::StepInterface,
    model::contents::engine_error,
};

/// What is generated, and how.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    /// Number of tokens to generate.
    pub tokens: usize,
    /// The tokens of the prompt; at least one.
    pub prompt_ids: Vec<u64>,
    /// Each token is drawn from so many with the largest logits, by their softmax. One is the largest.
    pub top_k: usize,
    /// The seed of these draws.
    pub seed: u64,
    /// Do not compare the tokens of a plan with those of one device.
    pub no_check: bool,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions { tokens: 64, prompt_ids: Vec::new(), top_k: 1, seed: 0, no_check: false }
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
    pub token_us: Option<TokenTimes>,
    /// Tensors that go from one server to another for a token.
    pub exchanges: usize,
    /// Their bytes.
    pub exchanged_bytes: u64,
    /// Whether the tokens are those of one device; `None` if they were not compared.
    pub is_equal: Option<bool>,
}

/// Times of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TokenTimes {
    pub median_us: Micros,
    pub min_us: Micros,
    pub p95_us: Micros,
}

/// What becomes of a cancelled generation.
const KEPT: &str = "the tokens so far are reported";

impl GenerateOptions {
    fn check(&self) -> Result<(), Error> {
        let what = match self {
            GenerateOptions { tokens: 0, .. } => "option `tokens`: expected at least one token",
            GenerateOptions { prompt_ids, .. } if prompt_ids.is_empty() => {
                "option `prompt_ids`: expected the numbers of at least one token"
            }
            GenerateOptions { top_k: 0, .. } => "option `top_k`: expected at least one token",
            _ => return Ok(()),
        };
        Err(Error::BadInput(what.into()))
    }
}

/// The longest step in which a prompt is read, unless an option says so.
const PREFILL_STEP: u64 = 128;

/// Generates tokens with the decoder at `path` on this machine's CPU, with the threads and the engine of `site`. The prompt
/// is read in steps of [`ModelOptions::prompt`] tokens, by default 128 or all, and what is left token by token. If `options` do not give the context, it is
/// as long as these tokens need.
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
    let prefill = options.prompt.unwrap_or(prompt.min(PREFILL_STEP));
    let context = options.context.unwrap_or_else(|| prompt.saturating_add(tokens - 1));
    let with_step = |step| ModelOptions { context: Some(context), prompt: Some(step), ..options.clone() };
    let model = Model::open(path, &with_step(1))?;
    events.notices(&model.notices);
    let threads = site.threads.unwrap_or(1);
    Oversubscribed::here(threads).iter().for_each(|warning| events.notice(warning));
    let engine = site.engine_options().start(threads as usize).map_err(Error::failed)?;
    let watch = RunWatch::start(events);
    watch.tell("loading the model");
    let mut steps = LocalSteps::load(&model, engine.as_ref())?;
    let mut interfaces = Interfaces { prefill: None, decode: StepInterface::of(&model)? };
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
    run(&mut steps, &interfaces, generate, events)
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
        let interfaces = Interfaces { prefill: None, decode: StepInterface::of(model)? };
        interfaces.check(options)?;
        let mut deployed = {
            let watch = RunWatch::start(events);
            watch.tell("loading the plan");
            self.deploy_with(model, plan, &interfaces.decode.states)?
        };
        let mut generation = {
            let watch = RunWatch::start(events);
            watch.tell("generating tokens");
            run(&mut deployed, &interfaces, options, events)?
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
            LocalSteps::load(model, engine.as_ref())
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
        let wanted = run(&mut steps, &interfaces, options, events)?.tokens;
        let same = generation.tokens.iter().zip(&wanted).take_while(|(found, wanted)| found == wanted).count();
        // What interrupts the comparison does not decide it.
        let is_compared = wanted.len() == generation.tokens.len() || same < wanted.len();
        if let (Some(found), Some(wanted)) = (generation.tokens.get(same), wanted.get(same)) {
            events.notice(format_args!("token {same} of the plan is {found}, but {wanted} on one device"));
        }
        Ok(Generation { is_equal: is_compared.then_some(same == wanted.len()), ..generation })
    }
}

/// The steps of a sequence.
struct Interfaces {
    /// The steps that read the prompt, if they are others than those of single tokens.
    prefill: Option<StepInterface>,
    decode: StepInterface,
}

/// Which step is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Prefill,
    Decode,
}

/// What computes the steps of one sequence.
trait Steps {
    /// Computes a step of `phase` from its `inputs` and, if it `continues`, the states that the step before left. Returns the outputs
    /// that are no states.
    fn step(
        &mut self,
        phase: Phase,
        inputs: &BTreeMap<&str, TensorData>,
        continues: bool,
    ) -> Result<Vec<TensorData>, Error>;
}

impl Steps for Deployed<'_> {
    /// A plan has one step, for both phases.
    fn step(
        &mut self,
        _: Phase,
        inputs: &BTreeMap<&str, TensorData>,
        continues: bool,
    ) -> Result<Vec<TensorData>, Error> {
        Deployed::step(self, inputs, continues)
    }
}

/// A decoder that is loaded in this process.
struct LocalSteps {
    decode: Box<dyn Executable>,
    /// The same for steps of several tokens, if there are any.
    prefill: Option<Box<dyn Executable>>,
    /// The names of the graph's inputs and outputs.
    names: Vec<SmolStr>,
    /// By input of the graph.
    inputs: Vec<Operand>,
    /// By output of the graph: the input that it is in the next step.
    next: Vec<Option<usize>>,
}

/// An input of a step in this process.
enum Operand {
    Given(SmolStr),
    State { zeros: TensorData, left: TensorData },
}

impl LocalSteps {
    fn load(model: &Model, engine: &dyn Engine) -> Result<LocalSteps, Error> {
        model.check_sizes()?;
        model.check_memory()?;
        let interface = StepInterface::of(model)?;
        let graph = model.graph();
        let pairs = interface.states.iter().map(|state| state.tensors(graph)).collect::<Result<Vec<_>, _>>()?;
        let contents = model.contents(graph)?;
        let decode = engine.load(graph, &|id| contents.of(id)).map_err(engine_error)?;
        let operands: Vec<_> = graph.inputs().collect();
        let operand = |id: &TensorId| {
            let tensor = graph.tensor(*id);
            if !pairs.iter().any(|(input, _)| input == id) {
                return Ok(Operand::Given(tensor.name.clone()));
            }
            let zeros = TensorData::zeros(&tensor.ty);
            let zeros = zeros.ok_or_else(|| Error::Failed(format!("{} has no size", tensor.name).into()))?;
            Ok(Operand::State { left: zeros.clone(), zeros })
        };
        let inputs = operands.iter().map(operand).collect::<Result<_, Error>>()?;
        let next = |output: &TensorId| {
            let (input, _) = pairs.iter().find(|(_, of)| of == output)?;
            operands.iter().position(|id| id == input)
        };
        Ok(LocalSteps {
            decode,
            prefill: None,
            names: names(graph),
            inputs,
            next: graph.outputs.iter().map(next).collect(),
        })
    }
}

impl LocalSteps {
    /// Loads `model`, the same decoder with steps of several tokens.
    fn load_prefill(&mut self, model: &Model, engine: &dyn Engine) -> Result<(), Error> {
        model.check_sizes()?;
        model.check_memory()?;
        if names(model.graph()) != self.names {
            let what = "with steps of several tokens the model has other inputs or outputs: give option `prompt` 1";
            return Err(Error::BadInput(what.into()));
        }
        let contents = model.contents(model.graph())?;
        self.prefill = Some(engine.load(model.graph(), &|id| contents.of(id)).map_err(engine_error)?);
        Ok(())
    }
}

/// The names of the inputs and outputs of `graph`.
fn names(graph: &Graph) -> Vec<SmolStr> {
    let both = graph.inputs().chain(graph.outputs.iter().copied());
    both.map(|id| graph.tensor(id).name.clone()).collect()
}

impl Steps for LocalSteps {
    fn step(
        &mut self,
        phase: Phase,
        inputs: &BTreeMap<&str, TensorData>,
        continues: bool,
    ) -> Result<Vec<TensorData>, Error> {
        let operand = |operand: &Operand| match operand {
            Operand::Given(name) => {
                inputs.get(name.as_str()).cloned().ok_or_else(|| Error::Failed(format!("{name} is not given").into()))
            }
            Operand::State { left, .. } if continues => Ok(left.clone()),
            Operand::State { zeros, .. } => Ok(zeros.clone()),
        };
        let operands = self.inputs.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
        let executable = match (phase, &mut self.prefill) {
            (Phase::Prefill, Some(prefill)) => prefill,
            _ => &mut self.decode,
        };
        let results = executable.run_stepwise(operands, &mut |_| {}).map_err(engine_error)?;
        let mut outputs = Vec::new();
        for (result, next) in results.into_iter().zip(&self.next) {
            match next.and_then(|at| self.inputs.get_mut(at)) {
                Some(Operand::State { left, .. }) => *left = result,
                _ => outputs.push(result),
            }
        }
        Ok(outputs)
    }
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

/// Reads the prompt, then generates tokens.
fn run(
    steps: &mut dyn Steps,
    interfaces: &Interfaces,
    options: &GenerateOptions,
    events: &Events,
) -> Result<Generation, Error> {
    interfaces.check(options)?;
    let decode = &interfaces.decode;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let stop = events.stop(None, KEPT);
    let mut chunks: Vec<(Phase, &StepInterface, &[u64])> = Vec::new();
    let mut left = &options.prompt_ids[..];
    if let Some(prefill) = &interfaces.prefill {
        let in_steps = left.chunks_exact(prefill.step);
        left = in_steps.remainder();
        chunks.extend(in_steps.map(|chunk| (Phase::Prefill, prefill, chunk)));
    }
    chunks.extend(left.chunks(1).map(|chunk| (Phase::Decode, decode, chunk)));
    // What an engine does once is not the prompt's time.
    steps.step(Phase::Decode, &decode.inputs(0, &options.prompt_ids[..1])?, false)?;
    if let Some((phase @ Phase::Prefill, prefill, chunk)) = chunks.first().copied() {
        steps.step(phase, &prefill.inputs(0, chunk)?, false)?;
    }
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
    let mut tokens = vec![choose(&logits, options.top_k, &mut random)?];
    let prefill = elapsed(begin);
    let mut times = Vec::new();
    while tokens.len() < options.tokens && !stop.is_requested() {
        let begin = Instant::now();
        let last = tokens[tokens.len() - 1];
        let computed = steps.step(Phase::Decode, &decode.inputs(past, &[last])?, true);
        let outputs = match computed {
            Err(Error::Cancelled) if !events.is_unwanted() => break,
            computed => computed?,
        };
        past += 1;
        tokens.push(choose(&decode.logits(&outputs)?, options.top_k, &mut random)?);
        times.push(elapsed(begin));
    }
    if tokens.len() < options.tokens {
        events.check()?;
        events.notice(format_args!("interrupted after {} of {} tokens", tokens.len(), options.tokens));
    }
    Ok(Generation {
        tokens,
        prompt_tokens: options.prompt_ids.len(),
        prefill_us: prefill,
        token_us: Statistics::of(&times).map(|of| TokenTimes { median_us: of.median, min_us: of.min, p95_us: of.p95 }),
        times_us: times,
        exchanges: 0,
        exchanged_bytes: 0,
        is_equal: None,
    })
}

fn elapsed(begin: Instant) -> Micros {
    Micros(begin.elapsed().as_secs_f64() * 1e6)
}

/// One of the `count` tokens with the largest logits, drawn by their softmax; of equal ones the first is larger.
fn choose(logits: &[f64], count: usize, random: &mut fastrand::Rng) -> Result<u64, Error> {
    if logits.is_empty() || logits.iter().any(|logit| logit.is_nan()) {
        return Err(Error::Failed("the logits are not numbers".into()));
    }
    let descending = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let count = count.min(order.len());
    order.select_nth_unstable_by(count - 1, descending);
    order.truncate(count);
    order.sort_unstable_by(descending);
    let weights: Vec<f64> = order.iter().map(|at| (logits[*at] - logits[order[0]]).exp()).collect();
    let mut left = random.f64() * weights.iter().sum::<f64>();
    let drawn = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    Ok(order[drawn.unwrap_or(0)] as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logit_or_one_of_the_largest_is_chosen() {
        let mut random = fastrand::Rng::with_seed(7);
        let logits = [1.0, 3.0, 3.0, f64::NEG_INFINITY, 2.0];
        assert_eq!(choose(&logits, 1, &mut random).unwrap(), 1);
        let mut drawn = [0; 5];
        for _ in 0..3000 {
            drawn[choose(&logits, 3, &mut random).unwrap() as usize] += 1;
        }
        assert_eq!((drawn[0], drawn[3]), (0, 0));
        // e⁰ : e⁰ : e⁻¹ of 3000 draws.
        for (at, share) in [(1, 0.422), (2, 0.422), (4, 0.155)] {
            let found = f64::from(drawn[at]) / 3000.0;
            assert!((found - share).abs() < 0.05, "{at}: {found}");
        }
        assert!(choose(&[f64::NAN], 1, &mut random).is_err());
        assert!(choose(&[], 1, &mut random).is_err());
        assert_eq!(choose(&[1.0], 9, &mut random).unwrap(), 0);
    }
}
