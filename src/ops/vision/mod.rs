//! Detection: boxes, regions and what is suppressed. One file for each kind of operator.

pub(super) mod reorg;
