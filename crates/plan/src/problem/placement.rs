//! A placement: the device of every group, and the order in which devices run their groups.

use super::{DeviceId, GroupId};

/// What searches look for. Everything else about a plan follows from it (`judge::evaluation`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// By group.
    pub devices: Vec<DeviceId>,
    /// Every group once, in a topological order; each device follows it for its own groups.
    pub order: Vec<GroupId>,
}

/// Why a placement does not fit its problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("{given} devices and {ordered} positions in the order for {groups} groups")]
    Count { groups: usize, given: usize, ordered: usize },
    #[error("group {group} cannot run on {device}")]
    Impossible { group: String, device: String },
    #[error("group {group} precedes a group that it reads from, or occurs twice in the order")]
    Order { group: String },
}

impl Placement {
    pub fn new(devices: &[DeviceId], order: &[GroupId]) -> Placement {
        Placement { devices: devices.to_vec(), order: order.to_vec() }
    }
}
