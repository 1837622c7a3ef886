//! The energy of an item on one device.

use serde::{Deserialize, Serialize};

use edgecut_engine::energy::EnergySource;
use edgecut_graph::units::{Joules, Micros, Watts};

/// What a run of an item consumes, and what the device draws when it does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Of one run, with what the device draws anyway: the mean power of runs back to back, times the median time of a run.
    pub run: Joules,
    /// Power of the idle device.
    pub idle: Watts,
    pub source: EnergySource,
}

/// An item whose power exceeds the idle device's by less than this fraction draws as much as that: rows are rounded.
const NEGLIGIBLE: f64 = 0.01;

impl Energy {
    /// The power above the idle device's while the item runs, which takes `time`; not negative.
    pub fn power_above_idle(&self, time: Micros) -> Watts {
        Watts((self.run.over(time) - self.idle).0.max(0.0))
    }

    /// Whether the item, which takes `time`, draws no more power than the idle device.
    pub(crate) fn is_idle(&self, time: Micros) -> bool {
        self.power_above_idle(time).0 <= NEGLIGIBLE * self.idle.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_above_idle_is_what_the_run_adds() {
        let energy = |run: f64| Energy { run: Joules(run), idle: Watts(4.0), source: EnergySource::Powercap };
        assert_eq!(energy(0.01).power_above_idle(Micros(1000.0)), Watts(6.0));
        assert_eq!(energy(0.001).power_above_idle(Micros(1000.0)), Watts::ZERO, "less than idle is noise");
        assert_eq!(energy(0.001).power_above_idle(Micros::ZERO), Watts::ZERO);
        let is_idle = |run: f64| energy(run).is_idle(Micros(1000.0));
        assert!(is_idle(0.001) && is_idle(0.004) && is_idle(0.004 + 1e-9) && !is_idle(0.0041));
    }
}
