//! Invalid requests, and how a client distinguishes an agent's refusal from a lost connection.

use std::fmt;

use edgecut_graph::units::Bytes;
use smol_str::SmolStr;

use super::{chunks::ChunkError, setup::SetupError};

/// Metadata key of a status that an agent returned; a status without it comes from the transport.
pub(in crate::agent) const REFUSAL: &str = "edgecut-refusal";

/// Metadata key of what a device lacked of memory, as [`MemoryShortage`] prints it.
pub(in crate::agent) const SHORTAGE: &str = "edgecut-shortage";

/// By how much a device has too little memory for its part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryShortage {
    /// Its name on its server.
    pub device: SmolStr,
    pub short: Bytes,
}

impl fmt::Display for MemoryShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.device, self.short.0)
    }
}

impl MemoryShortage {
    /// The shortage that `text` was printed from.
    pub fn parse(text: &str) -> Option<MemoryShortage> {
        let (device, short) = text.rsplit_once('=')?;
        Some(MemoryShortage { device: device.into(), short: Bytes(short.parse().ok()?) })
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
pub(in crate::agent) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
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
    fn a_shortage_is_read_as_it_is_written() {
        let shortage = MemoryShortage { device: "gpu0".into(), short: Bytes(12) };
        assert_eq!(MemoryShortage::parse(&shortage.to_string()), Some(shortage));
        assert!(["", "cpu", "cpu=", "cpu=-1", "cpu=1MiB"].iter().all(|text| MemoryShortage::parse(text).is_none()));
    }
}
