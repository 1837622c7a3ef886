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
    /// Rows that tell less power than that of the idle device; they count as idle.
    pub below_idle: usize,
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
        let is_below = |(energy, time): &&(Energy, Micros)| energy.run.over(*time) < energy.idle;
        let below_idle = of_source().filter(is_below).count();
        Some(DevicePower { above_idle: above.over(time), idle: Watts(quantile(&idle, 0.5)?), source, below_idle })
    }

    /// What its figures cannot tell, if there is something, of a device called `device`.
    pub fn doubt(&self, device: &str) -> Option<String> {
        (self.below_idle > 0).then(|| {
            format!(
                "{} rows of {device} tell less power (energy_j over time) than idle_w and count as idle: something else ran \
                 while the idle power was read, or they are too short for the meter",
                self.below_idle
            )
        })
    }

    /// The estimated energy of something that takes `time`.
    pub fn energy(&self, time: Micros) -> Energy {
        Energy { run: (self.above_idle + self.idle).during(time), idle: self.idle, source: self.source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Item, MeasurementMode, ProfiledDevice};
    use edgecut_engine::EngineId;
    use edgecut_graph::{Granularity, Graph};

    #[test]
    fn the_power_of_an_estimate_is_the_mean_over_time() {
        let engine = EngineId { name: "e".into(), version: "1".into() };
        let device =
            ProfiledDevice { server: "s".into(), device: "cpu".into(), hardware: "h".into(), engine, threads: 1 };
        let item = Item::new(&Graph::new(), Vec::new());
        let row = |id: usize, time: f64, joules: f64| ProfileRow {
            time_us_median: Some(Micros(time)),
            energy_j: Some(Joules(joules)),
            idle_w: Some(Watts(10.0)),
            energy_source: Some(EnergySource::External),
            ..ProfileRow::new(&device, MeasurementMode::Isolated, Granularity::Op, id, &item, &Err(String::new()))
        };
        // 2 W above idle for 1000 us, 5 W for 2000 us.
        let mut rows = [row(0, 1000.0, 0.012), row(1, 2000.0, 0.03)];
        let power = DevicePower::of(&rows).unwrap();
        assert_eq!((power.idle, power.source), (Watts(10.0), EnergySource::External));
        assert!((power.energy(Micros(4000.0)).power_above_idle(Micros(4000.0)).0 - 4.0).abs() < 1e-9, "{power:?}");
        assert_eq!((power.below_idle, power.doubt("s/cpu")), (0, None));
        rows[1].energy_j = Some(Joules(0.01));
        let power = DevicePower::of(&rows).unwrap();
        assert_eq!(power.below_idle, 1);
        assert!((power.above_idle.0 - 2.0 / 3.0).abs() < 1e-9 && power.doubt("s/cpu").is_some(), "{power:?}");
        rows.iter_mut().for_each(|row| row.idle_w = None);
        assert_eq!(DevicePower::of(&rows), None);
    }
}
