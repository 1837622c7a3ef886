//! States: outputs of a model that are inputs of the next step.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{Graph, OperatorId, Origin, TensorId, TensorType};

/// An input of a model, and the output that it is in the next step, by name.
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

/// Why a pair is no state of a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error("state `{0}`: the model has no input `{input}`", input = .0.input)]
    NoInput(StatePair),
    #[error("state `{0}`: the model has no output `{output}`", output = .0.output)]
    NoOutput(StatePair),
    #[error(
        "state `{state}`: the input is {input}, but the output is {output}: states have room for the whole context, so \
         that their sizes do not change"
    )]
    Types { state: StatePair, input: TensorType, output: TensorType },
    #[error("state `{0}`: no operator computes the output")]
    NotComputed(StatePair),
}

/// A state of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateTensors {
    pub input: TensorId,
    pub output: TensorId,
}

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

impl Graph {
    /// The state of the names in `pair`.
    ///
    /// # Errors
    /// If there is no such input or output, their types differ, or nothing computes the output.
    pub fn state(&self, pair: &StatePair) -> Result<StateTensors, StateError> {
        let named = |id: &TensorId, name: &SmolStr| self.tensor(*id).name == *name;
        let input = self.inputs().find(|id| named(id, &pair.input));
        let input = input.ok_or_else(|| StateError::NoInput(pair.clone()))?;
        let output = self.outputs.iter().copied().find(|id| named(id, &pair.output));
        let output = output.ok_or_else(|| StateError::NoOutput(pair.clone()))?;
        let (from, to) = (&self.tensor(input).ty, &self.tensor(output).ty);
        if from != to {
            return Err(StateError::Types { state: pair.clone(), input: from.clone(), output: to.clone() });
        }
        match self.tensor(output).origin {
            Origin::Operator { .. } => Ok(StateTensors { input, output }),
            _ => Err(StateError::NotComputed(pair.clone())),
        }
    }

    /// The states of the names in `pairs`.
    ///
    /// # Errors
    /// As of [`Graph::state`].
    pub fn states(&self, pairs: &[StatePair]) -> Result<Vec<StateTensors>, StateError> {
        pairs.iter().map(|pair| self.state(pair)).collect()
    }
}

impl StateTensors {
    /// Whether one group reads the state and computes its next content. `consumers` are those of
    /// [`Graph::consumers`], `group_of` gives the group of an operator.
    pub fn is_local<G: PartialEq>(
        self,
        graph: &Graph,
        consumers: &[Vec<OperatorId>],
        group_of: impl Fn(OperatorId) -> Option<G>,
    ) -> bool {
        let group = graph.producer(self.output).and_then(&group_of);
        group.is_some() && consumers[self.input.0 as usize].iter().all(|reader| group_of(*reader) == group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Operator};

    #[test]
    fn pairs_are_read_as_they_are_written() {
        let pair: StatePair = "h_in=h_out".parse().unwrap();
        assert_eq!(pair.to_string().parse(), Ok(pair));
        for text in ["h", "=h", "h="] {
            assert!(text.parse::<StatePair>().is_err(), "{text}");
        }
    }

    #[test]
    fn states_are_computed_inputs_of_the_same_type() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[4]);
        let h = graph.add_tensor("h", ty.clone(), Origin::Input);
        let x = graph.add_tensor("x", TensorType::of(DType::F32, &[5]), Origin::Input);
        let operator = graph.add_operator(Operator::new("f", [h, x]), std::slice::from_ref(&ty));
        let next = graph.operator(operator).outputs[0];
        graph.tensor_mut(next).name = "next".into();
        graph.outputs = vec![next, h];
        let state = |text: &str| graph.state(&text.parse().unwrap());
        assert_eq!(state("h=next"), Ok(StateTensors { input: h, output: next }));
        for (text, expected) in [
            ("g=next", "no input `g`"),
            ("h=g", "no output `g`"),
            ("x=next", "the input is"),
            ("h=h", "no operator computes"),
        ] {
            let error = state(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
