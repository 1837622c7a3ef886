//! The CPU engine that most people deploy: ONNX Runtime, whose library is found at run time.
//!
//! | module | contents |
//! |---|---|
//! | [`library`] | finding the library and loading it, once in a process |
//! | [`memory`] | the allocator that ONNX Runtime gets, which counts |
//! | [`output_types`] | types of a model's outputs, as it infers them |
//! | [`value`] | its tensors, and their conversion |
//! | [`provider`] | execution providers by name |
//! | [`weights`] | weights of a session, in a mapped file |
//! | [`shared_weights`] | what sessions of the same weights hold once |
//! | [`session`] | a part of a graph as a session |
//! | [`segments`] | division of a graph between sessions and the embedded engine |
//! | [`program`] | the programs of a graph; what is refused falls back |
//! | [`profile`] | times of operators from a session's own profile |
//! | [`steps`] | a loaded graph: running and measuring |
//! | [`context`] | what the executables of one engine share |
//!
//! A graph becomes one session, so that blocked layouts last across operators. Operators that ONNX Runtime has no kernel
//! for are computed by [`TractEngine`](crate::TractEngine) between two sessions. A graph that is loaded in steps is still
//! one session: its own profile says how the time divides among the steps.

mod context;
mod library;
mod memory;
mod output_types;
mod profile;
mod program;
mod provider;
mod segments;
mod session;
mod shared_weights;
mod steps;
mod value;
mod weights;

use std::{path::Path, sync::Arc};

use edgecut_graph::{Graph, OperatorId, TensorType};
use edgecut_onnx::expressible;
use edgecut_ops::Unsupported;

use context::{OrtContext, SessionOptions};
use steps::OrtSteps;

pub use provider::Provider;

use crate::{Engine, EngineError, EngineId, Executable, ParameterSource, cpu_quota};

/// Executes graphs by ONNX Runtime on this machine, with a fixed number of threads, one computation at a time.
#[derive(Clone)]
pub struct OnnxRuntimeEngine {
    context: Arc<OrtContext>,
}

impl OnnxRuntimeEngine {
    /// An engine with `threads` compute threads. The library is the one at `path`, else the first that is found: named by
    /// `ORT_DYLIB_PATH`, in the Python package that `python3` finds, in the system's folders.
    ///
    /// # Errors
    /// If no library is found, it cannot be loaded, or this process has too many engines.
    pub fn new(threads: usize, path: Option<&Path>, providers: &[Provider]) -> Result<OnnxRuntimeEngine, EngineError> {
        let library = library::library(path)?;
        let options = SessionOptions { threads: threads.max(1), providers: providers.to_vec() };
        Ok(OnnxRuntimeEngine { context: Arc::new(OrtContext::new(library, options)?) })
    }

    /// Name and version of the engine.
    ///
    /// # Errors
    /// If no library is found, or it cannot be loaded.
    pub fn identity(path: Option<&Path>) -> Result<EngineId, EngineError> {
        let library = library::found(path)?;
        // What is written for it depends on this crate's version too.
        let version = format!("{}+{}", library.version, env!("CARGO_PKG_VERSION"));
        Ok(EngineId { name: "onnxruntime".to_string(), version })
    }

    /// The types of the outputs of `model`, the bytes of an ONNX file: `None` for what the graph has no tensor type
    /// for. Sizes that depend on contents are unknown, and a tensor of unknown rank counts as a scalar. Nothing is
    /// computed.
    ///
    /// # Errors
    /// If no library is found, it cannot be loaded, or it refuses the model.
    pub fn output_types(path: Option<&Path>, model: &[u8]) -> Result<Vec<Option<TensorType>>, EngineError> {
        output_types::output_types(library::library(path)?, model)
    }

    /// The execution providers that the library was built with.
    ///
    /// # Errors
    /// If no library is found, or it cannot be loaded.
    pub fn providers(path: Option<&Path>) -> Result<Vec<String>, EngineError> {
        library::library(path)?;
        Ok(provider::available())
    }
}

impl Engine for OnnxRuntimeEngine {
    fn id(&self) -> EngineId {
        let version = format!("{}+{}", self.context.library.found.version, env!("CARGO_PKG_VERSION"));
        EngineId { name: "onnxruntime".to_string(), version }
    }

    fn threads(&self) -> usize {
        self.context.options.threads
    }

    fn quota(&self) -> Option<f64> {
        cpu_quota()
    }

    fn supports(&self, graph: &Graph, operator: OperatorId) -> Result<(), Unsupported> {
        expressible(graph, operator).or_else(|_| self.context.embedded.supports(graph, operator))
    }

    fn load(&self, graph: &Graph, parameter: &ParameterSource<'_>) -> Result<Box<dyn Executable>, EngineError> {
        Ok(Box::new(OrtSteps::load(Arc::clone(&self.context), graph, None, parameter)?))
    }

    fn load_steps(
        &self,
        graph: &Graph,
        steps: &[Vec<OperatorId>],
        parameter: &ParameterSource<'_>,
    ) -> Result<Box<dyn Executable>, EngineError> {
        Ok(Box::new(OrtSteps::load(Arc::clone(&self.context), graph, Some(steps), parameter)?))
    }

    fn sharing_weights(&self) -> Option<Arc<dyn Engine>> {
        // Other providers copy weights for each session.
        let is_cpu = self.context.options.providers.is_empty();
        is_cpu.then(|| {
            Arc::new(OnnxRuntimeEngine { context: Arc::new(self.context.sharing_weights()) }) as Arc<dyn Engine>
        })
    }
}
