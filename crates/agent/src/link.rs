//! Links between servers, and between a server and its devices.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use edgecut_graph::LinkCost;

/// A directed connection between two servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub from: SmolStr,
    pub to: SmolStr,
    #[serde(flatten)]
    pub cost: LinkCost,
}

/// The link between main memory and a device with its own memory, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HostLink {
    pub to_device: LinkCost,
    pub from_device: LinkCost,
}
