//! Generated tokens, and what was measured of them.

use edgecut_agent::results::Latencies;
use edgecut_graph::units::Micros;
use edgecut_plan::Plan;
use serde::Serialize;

use super::sequence::{PlanSteps, Sequence};
use crate::decoder::prefill::PromptSteps;

/// The sequences that were generated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generations {
    /// In the order of their prompts.
    pub sequences: Vec<Generation>,
    /// How many were generated at a time.
    pub at_a_time: usize,
    /// From the first prompt to the last token.
    pub elapsed_us: Micros,
    /// Generated tokens of all sequences over this time.
    pub tokens_per_s: f64,
    /// What the plan predicts for this number of sequences in flight, prefill excluded; `None` without a plan, for another number, or if
    /// another plan went on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_tokens_per_s: Option<f64>,
}

impl Generations {
    pub(super) fn of(sequences: Vec<Generation>, at_a_time: usize, elapsed_us: Micros) -> Generations {
        let tokens: usize = sequences.iter().map(|sequence| sequence.tokens.len()).sum();
        let tokens_per_s = tokens as f64 * 1e6 / elapsed_us.0.max(f64::MIN_POSITIVE);
        Generations { sequences, at_a_time, elapsed_us, tokens_per_s, predicted_tokens_per_s: None }
    }

    /// Adds what `steps` say of a token and, if it is the only one that has generated, what `plan` predicts.
    pub(super) fn add_figures(&mut self, steps: &PlanSteps, plan: Option<&Plan>) {
        let longest = steps.interfaces.prefill.as_ref().map_or(1, |interface| interface.step as u64);
        for sequence in &mut self.sequences {
            (sequence.exchanges, sequence.exchanged_bytes) = steps.exchanges;
            let of_prompt = PromptSteps { prompt: sequence.prompt_tokens as u64, step: longest };
            sequence.predicted = plan.filter(|_| self.at_a_time == 1).map(|plan| PredictedTimes::of(plan, of_prompt));
        }
        let in_flight = |plan: &&Plan| plan.in_flight.unwrap_or(plan.predicted.in_flight) as usize;
        let planned = plan.filter(|plan| self.at_a_time > 1 && in_flight(plan) == self.at_a_time);
        self.predicted_tokens_per_s = planned.map(|plan| plan.predicted.throughput_per_s);
    }

    /// Whether the tokens of all sequences are those of one device; `None` if some were not compared.
    pub fn is_equal(&self) -> Option<bool> {
        let each = self.sequences.iter().map(|sequence| sequence.is_equal);
        each.reduce(|one, other| match (one, other) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        })?
    }
}

/// The tokens of a sequence, and their times.
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
    /// What the plan predicts of one sequence at a time; `None` without a plan, or if another one went on.
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
    pub(super) fn of(plan: &Plan, steps: PromptSteps) -> PredictedTimes {
        let token_us = plan.predicted.latency_us;
        let of_step = plan.prefill.filter(|prefill| prefill.step == steps.step).map(|prefill| prefill.step_us);
        let of_step = if steps.step == 1 { Some(token_us) } else { of_step };
        PredictedTimes { token_us, prefill_us: of_step.map(|time| Micros(steps.sum(time.0, token_us.0))) }
    }
}

impl Generation {
    pub(super) fn of(sequence: Sequence<'_>) -> Generation {
        Generation {
            prompt_tokens: sequence.prompt().len(),
            tokens: sequence.tokens,
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
