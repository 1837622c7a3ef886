//! The power that a device draws while it computes, as far as its profile tells it.

use edgecut_engine::{energy::EnergySource, statistics::quantile};
use edgecut_graph::units::{Joules, Micros, Watts};

use crate::{Energy, ProfileRow};

/// Of one device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DevicePower {
    /// Mean power above the idle device's, weighted by time, of everything that was measured: the estimate for what was
    /// not.
    pub above_idle: Watts,
    /// Median of the idle power of all rows.
    pub idle: Watts,
    pub source: EnergySource,
}

impl DevicePower {
    /// From `rows`, all of one device; `None` if none of them has energy. If they have different sources, that of the
    /// first one counts.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a ProfileRow>) -> Option<DevicePower> {
        let measured = rows.into_iter().filter_map(|row| Some((row.energy()?, row.time_us_median?)));
        let measured: Vec<(Energy, Micros)> = measured.collect();
        let source = measured.first()?.0.source;
        let of_source = || measured.iter().filter(|(energy, _)| energy.source == source);
        let above: Joules = of_source().map(|(energy, time)| energy.power_above_idle(*time).during(*time)).sum();
        let time: Micros = of_source().map(|(_, time)| *time).sum();
        let mut idle: Vec<f64> = of_source().map(|(energy, _)| energy.idle.0).collect();
        idle.sort_by(f64::total_cmp);
        Some(DevicePower { above_idle: above.over(time), idle: Watts(quantile(&idle, 0.5)?), source })
    }

    /// The estimated energy of something that takes `time`.
    pub fn energy(&self, time: Micros) -> Energy {
        Energy { run: (self.above_idle + self.idle).during(time), idle: self.idle, source: self.source }
    }
}
