//! What computes the steps of a decoder: a plan on its agents, or an engine of this process.

use std::collections::BTreeMap;

use edgecut_agent::protocol::phase::Phase;
use edgecut_engine::{Engine, Executable};
use edgecut_graph::{Graph, TensorData, TensorId};
use smol_str::SmolStr;

use super::deployed::Deployed;
use crate::{Error, Model, model::contents::engine_error};

/// What computes the steps of one sequence.
pub(super) trait Steps {
    /// Computes a step of `phase` from its `inputs` and, if it `continues`, the states that the step before left. Returns
    /// the outputs that are no states.
    ///
    /// # Errors
    /// If an input is missing, the engine or an agent fails, or the run is cancelled.
    fn step(
        &mut self,
        phase: Phase,
        inputs: &BTreeMap<&str, TensorData>,
        continues: bool,
    ) -> Result<Vec<TensorData>, Error>;
}

/// The steps of one of the sequences of a deployment.
pub(super) struct SequenceSteps<'a> {
    pub deployed: &'a Deployed,
    /// Of as many as the deployment has inputs in flight.
    pub sequence: u32,
}

impl Steps for SequenceSteps<'_> {
    fn step(
        &mut self,
        phase: Phase,
        inputs: &BTreeMap<&str, TensorData>,
        continues: bool,
    ) -> Result<Vec<TensorData>, Error> {
        self.deployed.step((phase, self.sequence), inputs, continues)
    }
}

/// A decoder that is loaded in this process.
pub(super) struct LocalSteps {
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
    State { zeros: TensorData, current: TensorData },
}

impl LocalSteps {
    /// Loads `model`, whose steps have one token.
    ///
    /// # Errors
    /// If sizes are not known, or the engine does not compute the model.
    pub fn load(model: &Model, engine: &dyn Engine) -> Result<LocalSteps, Error> {
        model.check_sizes()?;
        model.check_memory()?;
        let graph = model.graph();
        let states = graph.states(&model.states).map_err(Error::bad_input)?;
        let contents = model.contents(graph)?;
        let decode = engine.load(graph, &|id| contents.of(id)).map_err(engine_error)?;
        let operands: Vec<_> = graph.inputs().collect();
        let operand = |id: &TensorId| {
            let tensor = graph.tensor(*id);
            if !states.iter().any(|state| state.input == *id) {
                return Ok(Operand::Given(tensor.name.clone()));
            }
            let zeros = TensorData::zeros(&tensor.ty);
            let zeros = zeros.ok_or_else(|| Error::Failed(format!("{} has no size", tensor.name).into()))?;
            Ok(Operand::State { current: zeros.clone(), zeros })
        };
        let inputs = operands.iter().map(operand).collect::<Result<_, Error>>()?;
        let next = |output: &TensorId| {
            let state = states.iter().find(|state| state.output == *output)?;
            operands.iter().position(|id| *id == state.input)
        };
        Ok(LocalSteps {
            decode,
            prefill: None,
            names: names(graph),
            inputs,
            next: graph.outputs.iter().map(next).collect(),
        })
    }

    /// Loads `model`, the same decoder with steps of several tokens.
    ///
    /// # Errors
    /// As of [`LocalSteps::load`], or if its inputs or outputs are others.
    pub fn load_prefill(&mut self, model: &Model, engine: &dyn Engine) -> Result<(), Error> {
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

    /// The states after the last step.
    pub fn into_states(self) -> Vec<TensorData> {
        let current = |operand: Operand| match operand {
            Operand::State { current, .. } => Some(current),
            Operand::Given(_) => None,
        };
        self.inputs.into_iter().filter_map(current).collect()
    }

    /// Continues a sequence from the `states` that the same decoder in a shorter context left. Shorter caches are left-padded.
    pub fn continue_from(&mut self, states: Vec<TensorData>) {
        let own = self.inputs.iter_mut().filter_map(|operand| match operand {
            Operand::State { zeros, current } => Some((zeros, current)),
            Operand::Given(_) => None,
        });
        for ((zeros, current), state) in own.zip(states) {
            *current = left_padded(&state, zeros).unwrap_or(state);
        }
    }
}

/// `data`, left-padded with zeros to the shape of `zeros`, which is longer in one axis; `None` if it is not.
fn left_padded(data: &TensorData, zeros: &TensorData) -> Option<TensorData> {
    let (from, to) = (data.shape(), zeros.shape());
    let axis = from.iter().zip(to).position(|(from, to)| from < to)?;
    let same = |axes: std::ops::RangeFrom<usize>| from.get(axes.clone()) == to.get(axes);
    if from.len() != to.len() || from[..axis] != to[..axis] || !same(axis + 1..) {
        return None;
    }
    let entry = from[axis + 1..].iter().product::<u64>() * data.dtype().size();
    let (own, all) = (usize::try_from(from[axis] * entry).ok()?, usize::try_from(to[axis] * entry).ok()?);
    let mut bytes = zeros.bytes().to_vec();
    if own > 0 {
        for (row, content) in bytes.chunks_exact_mut(all).zip(data.bytes().chunks_exact(own)) {
            row[all - own..].copy_from_slice(content);
        }
    }
    TensorData::new(data.dtype(), to, bytes).ok()
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
        let operand = |operand: &mut Operand| match operand {
            Operand::Given(name) => {
                inputs.get(name.as_str()).cloned().ok_or_else(|| Error::Failed(format!("{name} is not given").into()))
            }
            // Without another reference, the engine may write the next content in its place.
            Operand::State { zeros, current } if continues => Ok(std::mem::replace(current, zeros.clone())),
            Operand::State { zeros, .. } => Ok(zeros.clone()),
        };
        let operands = self.inputs.iter_mut().map(operand).collect::<Result<Vec<_>, _>>()?;
        let executable = match (phase, &mut self.prefill) {
            (Phase::Prefill, Some(prefill)) => prefill,
            _ => &mut self.decode,
        };
        let results = executable.run_stepwise(operands, &mut |_| {}).map_err(engine_error)?;
        let mut outputs = Vec::new();
        for (result, next) in results.into_iter().zip(&self.next) {
            match next.and_then(|at| self.inputs.get_mut(at)) {
                Some(Operand::State { current, .. }) => *current = result,
                _ => outputs.push(result),
            }
        }
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    #[test]
    fn caches_are_left_padded() {
        let tensor = |shape: &[u64], values: &[u8]| TensorData::new(DType::U8, shape, values.to_vec()).unwrap();
        let cache = tensor(&[2, 1, 2], &[1, 2, 3, 4]);
        let zeros = |shape: &[u64]| tensor(shape, &vec![0; shape.iter().product::<u64>() as usize]);
        let padded = tensor(&[2, 2, 2], &[0, 0, 1, 2, 0, 0, 3, 4]);
        for (shape, expected) in
            [(&[2, 2, 2][..], Some(padded)), (&[2, 1, 2], None), (&[2, 2, 3], None), (&[2, 2], None)]
        {
            assert_eq!(left_padded(&cache, &zeros(shape)), expected, "{shape:?}");
        }
    }
}
