//! Object detection: anchors, regions, boxes, non-maximum suppression. One file per kind of operator.

pub(crate) mod anchors;
#[cfg(feature = "kernels")]
mod boxes;
pub(crate) mod classes;
pub(crate) mod proposal;
pub(crate) mod regions;
pub(crate) mod reorg;
pub(crate) mod suppression;
