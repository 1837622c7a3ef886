//! Invalid requests, and how a client distinguishes an agent's refusal from a lost connection.

use super::{chunks::ChunkError, setup::SetupError};

/// Metadata key of a status that an agent returned; a status without it comes from the transport.
pub(in crate::agent) const REFUSAL: &str = "edgecut-refusal";

/// Messages that are not a valid request.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    #[error("{0}")]
    Malformed(String),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
}

/// The innermost cause of a failed connection or call, such as `connection refused` instead of `transport error`.
pub(in crate::agent) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    let text = innermost.to_string();
    // rustls reports a killed peer as a missing close_notify, with a long explanation.
    if text.contains("close_notify") { "the connection was cut".to_string() } else { text }
}
