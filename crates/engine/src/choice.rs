//! Which engine computes on a CPU.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use edgecut_graph::TensorType;
use serde::{Deserialize, Serialize};

use crate::{Engine, EngineError, EngineId, TractEngine};
#[cfg(feature = "onnxruntime")]
use crate::{
    OnnxRuntimeEngine, Provider,
    automatic::{AutomaticEngine, either},
};

/// The engine that a user asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineChoice {
    /// The embedded one, which needs nothing to be installed.
    #[default]
    Tract,
    OnnxRuntime,
    /// For each graph that is loaded, the one that computes it faster; tract where ONNX Runtime is not installed.
    Auto,
}

/// How the engine of a CPU is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineOptions {
    pub engine: EngineChoice,
    /// The library of ONNX Runtime; the first that is found without it.
    pub library: Option<PathBuf>,
    /// Whether an agent looks for engines that nothing asks for, to say which there are.
    pub look_for_all: bool,
    /// ONNX Runtime's execution providers, in order of preference; without any, its CPU provider.
    #[cfg(feature = "onnxruntime")]
    pub providers: Vec<Provider>,
}

/// The choices by name.
const NAMES: [(EngineChoice, &str); 3] =
    [(EngineChoice::Tract, "tract"), (EngineChoice::OnnxRuntime, "onnxruntime"), (EngineChoice::Auto, "auto")];

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<EngineChoice, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found
            .map(|(choice, _)| *choice)
            .ok_or_else(|| format!("`{text}` is no engine: expected tract, onnxruntime or auto"))
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(choice, _)| choice == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl EngineOptions {
    /// The same with another choice, where one is asked for.
    pub fn with(&self, engine: Option<EngineChoice>) -> EngineOptions {
        EngineOptions { engine: engine.unwrap_or(self.engine), ..self.clone() }
    }

    /// Starts the engine with `threads` threads.
    ///
    /// # Errors
    /// If ONNX Runtime is asked for and not found, or the threads cannot be started.
    pub fn start(&self, threads: usize) -> Result<Arc<dyn Engine>, EngineError> {
        match self.engine {
            EngineChoice::Tract => Ok(Arc::new(TractEngine::new(threads)?)),
            EngineChoice::OnnxRuntime => self.onnx_runtime(threads),
            EngineChoice::Auto => self.automatic(threads),
        }
    }

    /// Name and version of the engine that [`EngineOptions::start`] starts.
    ///
    /// # Errors
    /// If ONNX Runtime is asked for and not found.
    pub fn identity(&self) -> Result<EngineId, EngineError> {
        match self.engine {
            EngineChoice::Tract => Ok(TractEngine::identity()),
            EngineChoice::OnnxRuntime => self.onnx_runtime_identity(),
            EngineChoice::Auto => Ok(self.automatic_identity()),
        }
    }

    /// Name and version of ONNX Runtime, if it is installed; else what to do.
    ///
    /// # Errors
    /// If it is not found, or this program was built without it.
    #[cfg(feature = "onnxruntime")]
    pub fn onnx_runtime_identity(&self) -> Result<EngineId, EngineError> {
        OnnxRuntimeEngine::identity(self.library.as_deref())
    }

    #[cfg(not(feature = "onnxruntime"))]
    pub fn onnx_runtime_identity(&self) -> Result<EngineId, EngineError> {
        Err(built_without())
    }

    /// The types of the outputs of `model`, the bytes of an ONNX file, as ONNX Runtime infers them: see
    /// `OnnxRuntimeEngine::output_types`.
    ///
    /// # Errors
    /// If ONNX Runtime is not found, or refuses the model.
    #[cfg(feature = "onnxruntime")]
    pub fn output_types(&self, model: &[u8]) -> Result<Vec<Option<TensorType>>, EngineError> {
        OnnxRuntimeEngine::output_types(self.library.as_deref(), model)
    }

    #[cfg(not(feature = "onnxruntime"))]
    pub fn output_types(&self, _: &[u8]) -> Result<Vec<Option<TensorType>>, EngineError> {
        Err(built_without())
    }

    #[cfg(feature = "onnxruntime")]
    fn onnx_runtime(&self, threads: usize) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(Arc::new(OnnxRuntimeEngine::new(threads, self.library.as_deref(), &self.providers)?))
    }

    #[cfg(not(feature = "onnxruntime"))]
    fn onnx_runtime(&self, _: usize) -> Result<Arc<dyn Engine>, EngineError> {
        Err(built_without())
    }

    #[cfg(feature = "onnxruntime")]
    fn automatic_identity(&self) -> EngineId {
        let tract = TractEngine::identity();
        self.onnx_runtime_identity().map_or(tract.clone(), |other| either(&tract, &other))
    }

    #[cfg(not(feature = "onnxruntime"))]
    fn automatic_identity(&self) -> EngineId {
        TractEngine::identity()
    }

    #[cfg(feature = "onnxruntime")]
    fn automatic(&self, threads: usize) -> Result<Arc<dyn Engine>, EngineError> {
        let tract = Arc::new(TractEngine::new(threads)?);
        // A library that was named must be there, and one that was found must load.
        if self.library.is_none() && self.onnx_runtime_identity().is_err() {
            return Ok(tract);
        }
        Ok(Arc::new(AutomaticEngine::new(tract, self.onnx_runtime(threads)?)))
    }

    #[cfg(not(feature = "onnxruntime"))]
    fn automatic(&self, threads: usize) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(Arc::new(TractEngine::new(threads)?))
    }
}

#[cfg(not(feature = "onnxruntime"))]
fn built_without() -> EngineError {
    EngineError::Other("this program was built without ONNX Runtime (feature `onnxruntime`)".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_read_as_they_are_written() {
        for (choice, name) in NAMES {
            assert_eq!((choice.to_string().as_str(), name.parse()), (name, Ok(choice)));
        }
        assert!("TVM".parse::<EngineChoice>().unwrap_err().contains("expected tract, onnxruntime or auto"));
    }
}
