//! Why a graph did not load or run.

use edgecut_ops::Unsupported;

/// An error of an engine.
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
    /// The device cannot be used any longer by this process.
    #[error("{0}; the device is lost until the agent starts again")]
    DeviceLost(String),
}
