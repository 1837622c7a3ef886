//! Detection: anchors, regions, boxes and what is suppressed. One file for each kind of operator.

pub(super) mod anchors;
mod boxes;
pub(super) mod classes;
pub(super) mod proposal;
pub(super) mod regions;
pub(super) mod reorg;
pub(super) mod suppression;
