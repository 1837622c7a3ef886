//! The interface of all engines: [`Engine`] loads graphs, [`Executable`] runs them.

use std::sync::Arc;

use crate::{EngineError, Sample};
use edgecut_graph::{EngineId, Graph, OperatorId, TensorData, TensorId, units::Bytes};
use edgecut_ops::Unsupported;

/// Executes operators on one device.
pub trait Engine: Send + Sync {
    /// Name and version, as recorded in profiles.
    fn id(&self) -> EngineId;

    /// Number of compute threads.
    fn threads(&self) -> usize;

    /// CPU quota in cores; `None` without a limit.
    fn quota(&self) -> Option<f64> {
        None
    }

    /// Whether the engine can execute this operator of `graph`, and if not, why.
    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported>;

    /// Prepares `graph` to run as one step: packs weights and selects kernels.
    ///
    /// `parameter` is called once for each parameter of the graph that is not a constant.
    ///
    /// # Errors
    /// If an operator is not supported, a shape is unknown, or a parameter does not match its type.
    fn load(&self, graph: &Graph, parameter: &ParameterSource<'_>) -> Result<Box<dyn Executable>, EngineError> {
        self.load_steps(graph, &[graph.operators().map(|(id, _)| id).collect()], parameter)
    }

    /// Prepares `graph` to run in steps, each a group of operators that is computed as one.
    ///
    /// Together the steps must contain every operator that the outputs need, in topological order.
    ///
    /// # Errors
    /// As [`Engine::load`].
    fn load_steps(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError>;

    /// This engine for graphs with equal weights, each of which is then held once. `None` if every graph holds its own.
    fn sharing_weights(&self) -> Option<Arc<dyn Engine>> {
        None
    }

    /// Loads `graph` and runs it once, with the inputs and parameters that `content` gives.
    ///
    /// # Errors
    /// As [`Engine::load`], or if the run fails.
    fn evaluate(&self, graph: &Graph, content: &ParameterSource<'_>) -> Result<Vec<TensorData>, EngineError> {
        let mut loaded = self.load(graph, content)?;
        let inputs = graph.inputs().map(content).collect::<Result<Vec<_>, _>>()?;
        loaded.run(&inputs)
    }
}

/// Returns the content of a parameter of the graph.
pub type ParameterSource<'a> = dyn Fn(TensorId) -> Result<TensorData, EngineError> + 'a;

/// A loaded graph.
pub trait Executable: Send {
    /// Runs once. `inputs` in the order of [`Graph::inputs`], results in the order of [`Graph::outputs`].
    fn run(&mut self, inputs: &[TensorData]) -> Result<Vec<TensorData>, EngineError> {
        Ok(self.run_measured(inputs.to_vec())?.0)
    }

    /// Runs once and measures the computation, without the conversion of inputs and results.
    ///
    /// Takes the inputs by value, as do the methods below: those without other references are freed before the first step, or
    /// written [in place](Executable::in_place).
    fn run_measured(&mut self, inputs: Vec<TensorData>) -> Result<(Vec<TensorData>, Sample), EngineError>;

    /// Runs once, measures every step in context, and passes its index and sample to `each`.
    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError>;

    /// The same without measuring: `each` gets the index of every step after it, and may take the time.
    fn run_stepwise(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize),
    ) -> Result<Vec<TensorData>, EngineError> {
        self.run_in_steps(inputs, &mut |index, _| each(index))
    }

    /// Pairs of an input and an output, by index. A run may write the output over the input if the input is what the previous
    /// run returned as this output, and the run holds the only reference to it.
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// The inputs of a run that continues where the one before ended, which returned `outputs`: `given`, but those
    /// [in place](Executable::in_place) as that run left them.
    fn next_inputs(&self, given: &[TensorData], mut outputs: Vec<TensorData>) -> Vec<TensorData> {
        let mut inputs = given.to_vec();
        for (input, output) in self.in_place() {
            if let (Some(input), Some(output)) = (inputs.get_mut(*input), outputs.get_mut(*output)) {
                std::mem::swap(input, output);
            }
        }
        inputs
    }

    /// Runs once on generated inputs if step times are still needed; returns whether another run is needed. The stages of a
    /// partition are run round-robin, so that each finds the caches as the others leave them.
    fn learn(&mut self) -> bool {
        false
    }

    /// How many runs must come before those whose time counts.
    fn warm_up_runs(&self) -> u64 {
        1
    }

    /// By step: its share in the time of a run, if the steps run as one. Then [`Executable::run_stepwise`] calls `each` for
    /// all of them when the run has ended.
    fn step_shares(&self) -> Option<&[f64]> {
        None
    }

    /// The engine, where it was chosen for this graph.
    fn engine(&self) -> Option<EngineId> {
        None
    }

    /// The operators that another engine computes, because this one cannot.
    fn fallbacks(&self) -> &[Fallback] {
        &[]
    }

    /// Memory held while the graph is loaded: packed weights and constants.
    fn parameter_bytes(&self) -> Bytes;

    /// Peak memory while loading, including what stays loaded.
    fn loading_bytes(&self) -> Bytes;
}

/// An operator that another engine computes, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// Its name, unique in its graph.
    pub operator: String,
    pub reason: String,
}
