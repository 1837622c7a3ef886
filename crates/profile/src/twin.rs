//! A second copy of what is measured, which runs between a flush and a sample.
//!
//! A flush evicts what a model's operators find in the caches: the code of the engine and of the kernel, and the page tables
//! of both. In a model the same kernel ran some operators before, on other weights. So does the twin. Without it,
//! isolated operators of a decoder take 20 % more in sum than the model, and a norm 33 us instead of 9 (ONNX Runtime, EPYC).

use edgecut_engine::{Engine, EngineError, Executable, ParameterSource};
use edgecut_graph::{Graph, TensorData, TensorId, units::Bytes};

use crate::CacheFlush;

/// A loaded copy with weights of its own.
pub(super) struct Twin<'a> {
    executable: Box<dyn Executable>,
    inputs: &'a [TensorData],
    outputs: Vec<TensorData>,
}

impl<'a> Twin<'a> {
    /// Of `graph`, unless its weights are more than a flush displaces or than `room`: then code is the least of what it
    /// loads from memory. `None` also where it cannot be loaded.
    pub(super) fn of(
        engine: &dyn Engine,
        graph: &Graph,
        parameter: &ParameterSource<'_>,
        inputs: &'a [TensorData],
        room: Bytes,
    ) -> Option<Twin<'a>> {
        let weights: Bytes = graph.parameters().filter_map(|id| graph.tensor(id).ty.bytes()).sum();
        if weights > room.min(CacheFlush::MAX) {
            return None;
        }
        let copy = |id: TensorId| copied(&parameter(id)?);
        let mut executable = engine.load(graph, &copy).ok()?;
        let outputs = executable.run(inputs).ok()?;
        Some(Twin { executable, inputs, outputs })
    }

    /// Runs it once more.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn run(&mut self) -> Result<(), EngineError> {
        let inputs = self.executable.next_inputs(self.inputs, std::mem::take(&mut self.outputs));
        self.outputs = self.executable.run_measured(inputs)?.0;
        Ok(())
    }
}

/// The same content in memory of its own.
fn copied(data: &TensorData) -> Result<TensorData, EngineError> {
    let error = |error: edgecut_graph::TensorError| EngineError::Other(error.to_string());
    TensorData::new(data.dtype(), data.shape(), data.bytes().to_vec()).map_err(error)
}
