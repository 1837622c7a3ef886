//! Invalid requests, and how a client distinguishes an agent's refusal from a lost connection.

use std::fmt;

use edgecut_graph::units::Bytes;
use smol_str::SmolStr;

use super::{chunks::ChunkError, setup::SetupError};

/// Metadata key of a status that an agent returned; a status without it comes from the transport.
pub(crate) const REFUSAL: &str = "edgecut-refusal";

/// Metadata key of what a device lacked of memory, as [`MemoryShortfall`] prints it.
pub(crate) const SHORTFALL: &str = "edgecut-shortfall";

/// By how much a device has too little memory for its part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryShortfall {
    /// Its name on its server.
    pub device: SmolStr,
    pub bytes: Bytes,
}

impl fmt::Display for MemoryShortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.device, self.bytes.0)
    }
}

impl MemoryShortfall {
    /// The shortfall that `text` was printed from.
    pub fn parse(text: &str) -> Option<MemoryShortfall> {
        let (device, bytes) = text.rsplit_once('=')?;
        Some(MemoryShortfall { device: device.into(), bytes: Bytes(bytes.parse().ok()?) })
    }
}

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
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(next) = innermost.source() {
        innermost = next;
    }
    let text = innermost.to_string();
    // rustls reports a killed peer as a missing close_notify, with a long explanation.
    if text.contains("close_notify") { "the connection was cut".to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortfall_is_read_as_it_is_written() {
        let shortfall = MemoryShortfall { device: "gpu0".into(), bytes: Bytes(12) };
        assert_eq!(MemoryShortfall::parse(&shortfall.to_string()), Some(shortfall));
        assert!(["", "cpu", "cpu=", "cpu=-1", "cpu=1MiB"].iter().all(|text| MemoryShortfall::parse(text).is_none()));
    }
}
