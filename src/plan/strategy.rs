//! How one group is placed.

use serde::{Deserialize, Serialize};

use super::DeviceId;

/// The placement of one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Strategy {
    /// All of it on one device.
    Whole { device: DeviceId },
}

impl Strategy {
    /// The devices that take part, each once.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        match self {
            Strategy::Whole { device } => std::iter::once(*device),
        }
    }
}
