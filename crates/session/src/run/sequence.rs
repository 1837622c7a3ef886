//! A sequence of a decoder while it is generated: the tokens so far, their times, and the steps that compute the next ones.

use std::time::Instant;

use edgecut_agent::protocol::phase::Phase;
use edgecut_graph::units::Micros;
use edgecut_plan::Stop;

use super::steps::Steps;
use crate::{Error, Events, Model, decoder::interface::StepInterface};

/// The tokens so far. What fails between two of them may be continued by other steps.
#[derive(Debug)]
pub(super) struct Sequence<'a> {
    prompt: &'a [u64],
    /// Number of tokens to generate.
    wanted: usize,
    pub tokens: Vec<u64>,
    /// From the start of the prompt to the first token.
    pub prefill: Micros,
    /// Of each token after the first.
    pub times: Vec<Micros>,
    /// When the last token was there; when the prompt was begun, before there is one.
    since: Option<Instant>,
}

/// Makes a token of logits, or none to end.
pub(super) type Select<'a> = dyn FnMut(&[f64]) -> Result<Option<u64>, Error> + Send + 'a;

/// What becomes of a cancelled generation.
const KEPT: &str = "the generated tokens are reported";

impl<'a> Sequence<'a> {
    /// `wanted` tokens after `prompt`.
    pub fn new(prompt: &'a [u64], wanted: usize) -> Sequence<'a> {
        Sequence { prompt, wanted, tokens: Vec::new(), prefill: Micros::ZERO, times: Vec::new(), since: None }
    }

    pub fn prompt(&self) -> &'a [u64] {
        self.prompt
    }

    /// Number of tokens to generate.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    pub fn is_complete(&self) -> bool {
        self.tokens.len() >= self.wanted
    }

    /// Reads the prompt and the tokens so far, then generates the tokens that `select` makes of logits, until it makes none or the
    /// generation is cancelled.
    ///
    /// # Errors
    /// If a step fails, or the generation is cancelled before the first token. The tokens so far are kept.
    pub fn extend(
        &mut self,
        steps: &mut dyn Steps,
        interfaces: &Interfaces,
        events: &Events,
        select: &mut Select<'_>,
    ) -> Result<(), Error> {
        interfaces.check(self.prompt, self.wanted)?;
        let stop = events.stop(None, KEPT);
        self.since.get_or_insert_with(Instant::now);
        let text: Vec<u64> = self.prompt.iter().chain(&self.tokens).copied().collect();
        let mut next = read(steps, interfaces, &text, stop);
        let mut past = text.len();
        loop {
            let logits = match next {
                Ok(logits) => logits,
                Err(Error::Cancelled) if !events.is_unwanted() && !self.tokens.is_empty() => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some(token) = select(&logits)? else { return Ok(()) };
            self.push(token);
            if self.is_complete() {
                return Ok(());
            }
            next = match stop.is_requested() {
                true => Err(Error::Cancelled),
                false => step(steps, (Phase::Decode, &interfaces.decode), &[token], past),
            };
            past += 1;
        }
    }

    fn push(&mut self, token: u64) {
        let now = Instant::now();
        let time = self.since.replace(now).map_or(Micros::ZERO, |since| Micros::from(now.duration_since(since)));
        match self.tokens.is_empty() {
            true => self.prefill = time,
            false => self.times.push(time),
        }
        self.tokens.push(token);
    }
}

/// The logits after `text`, which begins a sequence: in steps of several tokens as far as they go, then token by token.
fn read(steps: &mut dyn Steps, interfaces: &Interfaces, text: &[u64], stop: Stop) -> Result<Vec<f64>, Error> {
    let (mut past, mut logits) = (0, Vec::new());
    while past < text.len() {
        if stop.is_requested() {
            return Err(Error::Cancelled);
        }
        let longer = interfaces.prefill.as_ref().filter(|prefill| past + prefill.step <= text.len());
        let (phase, interface, count) = match longer {
            Some(prefill) => (Phase::Prefill, prefill, prefill.step),
            None => (Phase::Decode, &interfaces.decode, 1),
        };
        logits = step(steps, (phase, interface), &text[past..past + count], past)?;
        past += count;
    }
    Ok(logits)
}

/// The logits of a step that reads `tokens` after `past` others.
fn step(
    steps: &mut dyn Steps,
    (phase, interface): (Phase, &StepInterface),
    tokens: &[u64],
    past: usize,
) -> Result<Vec<f64>, Error> {
    let outputs = steps.step(phase, &interface.inputs(past, tokens)?, past > 0)?;
    interface.logits(&outputs)
}

/// The steps of a sequence.
pub(super) struct Interfaces {
    /// Steps of several tokens, which read the prompt.
    pub prefill: Option<StepInterface>,
    pub decode: StepInterface,
}

/// How a plan has generated tokens.
pub(super) struct PlanSteps {
    /// The model with steps of several tokens, if the prompt was read in such.
    pub longer: Option<Model>,
    pub interfaces: Interfaces,
    /// Transfers between servers for a token, and their bytes.
    pub exchanges: (usize, u64),
}

impl Interfaces {
    /// Checks that tokens are generated one by one, that those of the prompt exist, and that the context has room for it
    /// and all new ones but the last, which no step reads.
    pub fn check(&self, prompt: &[u64], tokens: usize) -> Result<(), Error> {
        if self.decode.step != 1 {
            let what = format!("a step has {} tokens, and one is generated at a time", self.decode.step);
            return Err(Error::BadInput(format!("{what}: read the model, or plan it, with option `prompt` 1").into()));
        }
        let of_vocabulary = |id: &&u64| self.decode.vocabulary.is_some_and(|vocabulary| **id >= vocabulary);
        if let (Some(id), Some(vocabulary)) = (prompt.iter().find(of_vocabulary), self.decode.vocabulary) {
            let what = format!("option `prompt_ids`: there is no token {id}: the model has {vocabulary}");
            return Err(Error::BadInput(what.into()));
        }
        let Some(context) = self.decode.context else { return Ok(()) };
        let prompt = prompt.len();
        let needed = prompt.saturating_add(tokens.saturating_sub(1));
        if needed <= context {
            return Ok(());
        }
        let what = format!("a prompt of {prompt} tokens and {tokens} new ones need a context of {needed}");
        let advice = format!("it has {context}: read the model, or plan it, with a longer one by option `context`");
        Err(Error::BadInput(format!("{what}, but {advice}").into()))
    }
}

/// Computes the first step of each phase: what an engine does once is not the prompt's time.
pub(super) fn warm_up(steps: &mut dyn Steps, interfaces: &Interfaces, prompt: &[u64]) -> Result<(), Error> {
    let Interfaces { prefill, decode } = interfaces;
    steps.step(Phase::Decode, &decode.inputs(0, &prompt[..1])?, false)?;
    if let Some((prefill, chunk)) = prefill.as_ref().and_then(|prefill| Some((prefill, prompt.get(..prefill.step)?))) {
        steps.step(Phase::Prefill, &prefill.inputs(0, chunk)?, false)?;
    }
    Ok(())
}
