//! What all sources have in common.

use std::time::Instant;

use super::EnergyLost;
use edgecut_graph::units::Joules;

/// One measurement of a source, which is read again and again.
pub(super) trait EnergyProbe: Send {
    /// The energy since the call before, or since the probe was opened; not negative. `now` is the time of the call.
    fn advance(&mut self, now: Instant) -> Result<Joules, EnergyLost>;
}
