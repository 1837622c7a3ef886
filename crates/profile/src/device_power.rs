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
    /// Rows that draw no more power than the idle device.
    pub idle_rows: usize,
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
        let idle_rows = measured.iter().filter(|(energy, time)| energy.is_idle(*time)).count();
        Some(DevicePower { above_idle: above.over(time), idle: Watts(quantile(&idle, 0.5)?), source, idle_rows })
    }

    /// A warning of rows whose power above idle is not known, if there are any; `device` is the device's name.
    pub fn warning(&self, device: &str) -> Option<String> {
        let rows = match self.idle_rows {
            0 => return None,
            1 => "1 row".to_string(),
            several => format!("{several} rows"),
        };
        let why = match self.source {
            EnergySource::External => "check both columns",
            _ => "other processes ran while idle_w was measured, or the operators are too short for the meter",
        };
        Some(format!("{rows} of {device} with no more power (energy_j over time) than idle_w: {why}"))
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
        assert_eq!((power.idle_rows, power.warning("s/cpu")), (0, None));
        rows[1].energy_j = Some(Joules(0.01));
        let power = DevicePower::of(&rows).unwrap();
        assert!((power.above_idle.0 - 2.0 / 3.0).abs() < 1e-9, "{power:?}");
        assert!(power.warning("s/cpu").is_some_and(|warning| warning.starts_with("1 row of s/cpu")), "{power:?}");
        rows.iter_mut().for_each(|row| row.idle_w = None);
        assert_eq!(DevicePower::of(&rows), None);
    }
}
