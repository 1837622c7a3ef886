//! Engines, as options choose them.

#[cfg(feature = "onnxruntime")]
pub use edgecut_engine::Provider;
pub use edgecut_engine::{Dilation, EngineChoice, EngineOptions, configure_heap};
