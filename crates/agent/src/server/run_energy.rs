//! The energy meters of this server during a run.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::device::Device;
use crate::protocol::inference_trace::SourceEnergy;
use edgecut_engine::energy::EnergyReading;

/// A measurement of each source, from the setup of a run to its end.
pub(super) struct RunEnergy {
    sources: Vec<Source>,
}

struct Source {
    /// With its parts.
    name: String,
    reading: EnergyReading,
    /// Values closer to each other say nothing.
    interval: Duration,
    read_at: Option<Instant>,
}

impl RunEnergy {
    /// Measures the sources of `devices`: one that several have, such as the rails of a Jetson, once.
    pub fn start<'a>(devices: impl Iterator<Item = &'a Arc<Device>>) -> RunEnergy {
        let mut sources: Vec<Source> = Vec::new();
        for meter in devices.filter_map(|device| Some(device.energy()?.meter())) {
            let name = meter.to_string();
            if sources.iter().any(|source| source.name == name) {
                continue;
            }
            match meter.start() {
                Ok(reading) => sources.push(Source { name, reading, interval: meter.shortest(), read_at: None }),
                Err(lost) => tracing::warn!("no energy of this run: {lost}"),
            }
        }
        RunEnergy { sources }
    }

    /// What the sources have counted so far at `now`, without those that were read a moment ago.
    pub fn read(&mut self, now: Instant) -> Vec<SourceEnergy> {
        self.sources.iter_mut().filter_map(|source| source.read(now)).collect()
    }
}

impl Source {
    fn read(&mut self, now: Instant) -> Option<SourceEnergy> {
        if self.read_at.is_some_and(|at| now.saturating_duration_since(at) < self.interval) {
            return None;
        }
        self.read_at = Some(now);
        // A lost source tells no more; what the client has until then still holds.
        let total = self.reading.so_far().ok()?.energy;
        Some(SourceEnergy { source: self.name.clone(), total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceKind, server::device::tests::device};
    use edgecut_engine::energy::EnergyMeter;
    use edgecut_graph::units::Joules;
    use edgecut_profile::MeteredDevice;
    use std::{fs, path::Path};

    fn metered(classes: &Path) -> Arc<Device> {
        device(DeviceKind::Cpu, Some(MeteredDevice::new(EnergyMeter::of_processor_in(classes).unwrap())))
    }

    #[test]
    fn a_source_of_two_devices_is_read_once_and_not_again_at_once() {
        let root = tempfile::tempdir().unwrap();
        let zone = root.path().join("powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        for (file, text) in [("name", "package-0"), ("energy_uj", "7"), ("max_energy_range_uj", "99999999")] {
            fs::write(zone.join(file), text).unwrap();
        }
        let devices = [metered(root.path()), metered(root.path())];
        let mut energy = RunEnergy::start(devices.iter());
        let told = |total| SourceEnergy { source: "powercap: package-0".to_string(), total };
        let (now, interval) = (Instant::now(), devices[0].energy().unwrap().meter().shortest());
        assert_eq!(energy.read(now), [told(Joules::ZERO)]);
        fs::write(zone.join("energy_uj"), "3000007").unwrap();
        assert_eq!(energy.read(now + interval / 2), []);
        assert_eq!(energy.read(now + interval), [told(Joules(3.0))]);
        fs::remove_file(zone.join("energy_uj")).unwrap();
        assert_eq!(energy.read(now + 2 * interval), []);
        assert_eq!(RunEnergy::start(devices.iter()).read(now), []);
    }
}
