//! Costs of computing a model in parts, as the caller estimates or has measured them.

use edgecut_graph::{
    OperatorId,
    units::{Bytes, Micros},
};

/// Execution time of parts of operator groups, and of copies.
pub trait GroupCosts {
    /// Time of a `share` (0 to 1) of a group that takes `whole` when computed at once.
    fn part(&self, group: &[OperatorId], whole: Micros, share: f64) -> Micros;
    /// Time to copy `bytes` within the memory of the device.
    fn copy(&self, bytes: Bytes) -> Micros;
}
