//! What executes operators on a device: the [`Engine`] trait, one file an engine, and how to measure.
//!
//! An engine is given a graph (a whole model, a part of one, or a single operator cut out) and runs exactly
//! that. It knows nothing of plans, clusters or sockets.

mod clock;
mod contain;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod gpu;
mod heap;
mod memory;
mod overhead;
mod quota;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    graph::{Graph, OperatorId, TensorData, TensorId},
    ops::Unsupported,
    units::{Bytes, Micros},
};

pub use clock::{CpuClock, timed};
pub use cpu::CpuEngine;
pub use gpu::{CudaVersion, Gpu, GpuLibrary, GpuReport, Lacking, Started, StartedGpu, start_gpus};
pub use heap::prepare_heap;
pub use memory::{CountingAllocator, Joined, Meter};
pub use quota::processor_quota;

/// A way to execute operators on one kind of device.
pub trait Engine: Send + Sync {
    /// Name and version, as profiles record them.
    fn id(&self) -> EngineId;

    /// Number of threads that compute.
    fn threads(&self) -> usize;

    /// What it may have of the processor's time, in cores' time; `None` without a limit.
    fn quota(&self) -> Option<f64> {
        None
    }

    /// Whether one operator of `graph` can run here, and if not, why.
    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported>;

    /// Makes `graph` ready to run as a whole: weights are packed and kernels chosen here, once.
    ///
    /// `parameter` is asked once for each of the graph's parameters that is not a constant.
    ///
    /// # Errors
    /// If an operator is not supported, a shape is not known, or a parameter does not fit its type.
    fn load(&self, graph: &Graph, parameter: &ParameterSource<'_>) -> Result<Box<dyn Executable>, EngineError> {
        self.load_steps(graph, &[graph.operators().map(|(id, _)| id).collect()], parameter)
    }

    /// Makes `graph` ready to run in steps, each a group of operators that is computed as one.
    ///
    /// Together the steps must hold every operator that the outputs need, in an order that can be computed.
    ///
    /// # Errors
    /// As [`Engine::load`].
    fn load_steps(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError>;

    /// Loads `graph` and runs it once, with `content` for its inputs and parameters.
    ///
    /// # Errors
    /// As [`Engine::load`], or if it fails while running.
    fn evaluate(&self, graph: &Graph, content: &ParameterSource<'_>) -> Result<Vec<TensorData>, EngineError> {
        let mut loaded = self.load(graph, content)?;
        let inputs = graph.inputs().map(content).collect::<Result<Vec<_>, _>>()?;
        loaded.run(&inputs)
    }
}

/// Gives the content of a parameter tensor of the graph.
pub type ParameterSource<'a> = dyn Fn(TensorId) -> Result<TensorData, EngineError> + 'a;

/// A graph made ready by [`Engine::load`].
pub trait Executable: Send {
    /// Runs once. `inputs` in the order of [`Graph::inputs`], results in the order of [`Graph::outputs`].
    fn run(&mut self, inputs: &[TensorData]) -> Result<Vec<TensorData>, EngineError> {
        Ok(self.run_measured(inputs)?.0)
    }

    /// Runs once and measures; handing inputs in and results out is outside the sample.
    fn run_measured(&mut self, inputs: &[TensorData]) -> Result<(Vec<TensorData>, Sample), EngineError>;

    /// Runs once, measuring every step by itself in its place, and tells `each` the step's index and sample.
    ///
    /// The inputs are taken so that what nobody else holds is freed before the first step.
    fn run_in_steps(
        &mut self,
        inputs: Vec<TensorData>,
        each: &mut dyn FnMut(usize, Sample),
    ) -> Result<Vec<TensorData>, EngineError>;

    /// What the loaded graph holds for its lifetime: packed weights and constants.
    fn parameter_bytes(&self) -> Bytes;

    /// Most memory that loading took at one time, what is held included.
    fn loading_bytes(&self) -> Bytes;
}

/// One measured run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Wall clock around the computation alone.
    pub wall: Micros,
    /// Processor time of all threads that took part.
    pub cpu: Micros,
    /// On a GPU, what passed on the card from the first to the last kernel.
    pub kernels: Option<Micros>,
    /// Most memory allocated at one time while running, beyond the results.
    pub workspace: Bytes,
    /// Most memory taken at one time while running: the tensors of the graph that are alive, operands and results
    /// among them, and workspace; not what is loaded.
    pub peak: Bytes,
    /// The tensors alone: all that are alive when a step is done, and its operands.
    #[serde(default)]
    pub tensors: Bytes,
}

impl Sample {
    /// Both computations, `next` after this one.
    pub fn then(self, next: Sample) -> Sample {
        Sample {
            wall: self.wall + next.wall,
            cpu: self.cpu + next.cpu,
            kernels: self.kernels.zip(next.kernels).map(|(first, then)| first + then),
            workspace: self.workspace.max(next.workspace),
            peak: self.peak.max(next.peak),
            tensors: self.tensors.max(next.tensors),
        }
    }
}

/// Name and version of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EngineId {
    pub name: String,
    pub version: String,
}

/// Why a graph did not load or run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error("{operator}: {what}")]
    Operator { operator: String, what: String },
    #[error("tensor `{name}`: {what}")]
    Tensor { name: String, what: String },
    #[error("{0}")]
    Other(String),
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}
