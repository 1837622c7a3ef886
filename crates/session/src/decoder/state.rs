//! States: pairs of an input and an output of a model that become each other in the next step.

use std::{fmt, str::FromStr};

use edgecut_graph::{Graph, Origin, TensorId};
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use super::config::{InputNames, OutputNames, layer};
use crate::Error;

/// An input of a model, and the output that it is in the next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StatePair {
    pub input: SmolStr,
    pub output: SmolStr,
}

/// A text that is no pair of an input and an output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}`: expected INPUT=OUTPUT, such as `past_key=present_key`")]
pub struct StatePairError(String);

impl FromStr for StatePair {
    type Err = StatePairError;
    fn from_str(text: &str) -> Result<StatePair, StatePairError> {
        match text.split_once('=') {
            Some((input, output)) if !input.is_empty() && !output.is_empty() => {
                Ok(StatePair { input: input.into(), output: output.into() })
            }
            _ => Err(StatePairError(text.to_string())),
        }
    }
}

impl TryFrom<String> for StatePair {
    type Error = StatePairError;
    fn try_from(text: String) -> Result<StatePair, StatePairError> {
        text.parse()
    }
}

impl From<StatePair> for String {
    fn from(state: StatePair) -> String {
        state.to_string()
    }
}

impl fmt::Display for StatePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.input, self.output)
    }
}

impl StatePair {
    /// The tensors of the state in `graph`, of the next input and of the output.
    ///
    /// # Errors
    /// If the model has no such input or output, their types differ, or nothing computes the output.
    pub(crate) fn tensors(&self, graph: &Graph) -> Result<(TensorId, TensorId), Error> {
        let fail = |what: String| Err(Error::BadInput(format!("state `{self}`: {what}").into()));
        let named = |id: &TensorId, name: &SmolStr| graph.tensor(*id).name == *name;
        let Some(input) = graph.inputs().find(|id| named(id, &self.input)) else {
            return fail(format!("the model has no input `{}`", self.input));
        };
        let Some(output) = graph.outputs.iter().copied().find(|id| named(id, &self.output)) else {
            return fail(format!("the model has no output `{}`", self.output));
        };
        let (from, to) = (graph.tensor(input), graph.tensor(output));
        if from.ty != to.ty {
            let advice = "states have room for the whole context, so that their sizes do not change";
            return fail(format!("the input is {}, but the output is {}: {advice}", from.ty, to.ty));
        }
        if !matches!(to.origin, Origin::Operator { .. }) {
            return fail("no operator computes the output".to_string());
        }
        Ok((input, output))
    }

    /// The state of the input `name`, if it has the name of a cache; `outputs` are the names of the outputs.
    pub(super) fn by_name(name: &str, outputs: &[SmolStr], patterns: (&InputNames, &OutputNames)) -> Option<StatePair> {
        let (of_inputs, of_outputs) = patterns;
        let configured = [
            (&of_inputs.past_key_names, &of_outputs.present_key_names),
            (&of_inputs.past_value_names, &of_outputs.present_value_names),
        ];
        let configured = configured
            .into_iter()
            .find_map(|(past, present)| Some(SmolStr::from(present.replacen("%d", layer(name, past)?, 1))));
        // As Optimum (`past_key_values`) and others export them.
        let usual = ["past_key_values", "past"]
            .into_iter()
            .filter_map(|past| Some(format_smolstr!("present{}", name.strip_prefix(past)?)));
        let output = configured.into_iter().chain(usual).find(|output| outputs.contains(output))?;
        Some(StatePair { input: name.into(), output })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_known_by_their_names() {
        let patterns = (&InputNames::default(), &OutputNames::default());
        let outputs = ["logits", "present.0.key", "present.10.value", "present_key_1"].map(SmolStr::from);
        for (input, output) in [
            ("past_key_values.0.key", Some("present.0.key")),
            ("past_key_values.10.value", Some("present.10.value")),
            ("past_key_values.1.key", None),
            ("past_key_1", Some("present_key_1")),
            ("input_ids", None),
        ] {
            let state = StatePair::by_name(input, &outputs, patterns);
            assert_eq!(state.as_ref().map(|state| state.output.as_str()), output, "{input}");
        }
    }

    #[test]
    fn pairs_are_read_as_they_are_written() {
        let pair: StatePair = "h_in=h_out".parse().unwrap();
        assert_eq!(pair.to_string().parse(), Ok(pair));
        for text in ["h", "=h", "h="] {
            assert!(text.parse::<StatePair>().is_err(), "{text}");
        }
    }
}
