//! The result of a link probe.

use serde::{Deserialize, Serialize};

use edgecut_graph::units::{Bytes, Micros};

/// The largest transfer of a probe.
pub const MAX_PROBE_SIZE: Bytes = Bytes(8 << 20);

/// One timed transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProbeSample {
    pub bytes: Bytes,
    /// From the departure of the first byte to the arrival of the acknowledgement.
    pub round_trip: Micros,
}
