//! The cost of one item on one device: the result of a measurement.

use serde::{Deserialize, Serialize};

use crate::{Conditions, Energy, conditions::if_known};
use edgecut_engine::statistics::Statistics;
use edgecut_graph::units::{Bytes, Micros};

/// What one item costs on one device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Wall-clock time.
    pub time: Statistics,
    /// Median CPU time, summed over all threads.
    pub cpu: Micros,
    /// On a GPU, the median time from the first to the last kernel, by the device's clock.
    #[serde(default)]
    pub kernels: Option<Micros>,
    /// Maximum over all samples.
    pub workspace: Bytes,
    /// What the engine keeps loaded for the item: packed weights and constants.
    pub held: Bytes,
    /// Fraction of the samples during which another process used the CPU. Disturbed samples are excluded from the
    /// statistics if enough others exist.
    pub disturbed: f64,
    /// `None` where the server does not tell it.
    #[serde(default, deserialize_with = "if_known")]
    pub energy: Option<Energy>,
    #[serde(default)]
    pub conditions: Conditions,
}

/// One result of a measurement: the cost of an item, or why the device cannot compute it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Index of the item.
    pub item: usize,
    pub cost: Result<Cost, String>,
}
