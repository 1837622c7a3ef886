//! Idle power of devices, from their profiles.

use edgecut_agent::DeviceSpec;
use edgecut_engine::energy::EnergySource;
use edgecut_graph::units::Watts;
use edgecut_profile::DevicePower;

/// By device: its idle power. Devices whose energy one meter reads share its idle power equally, so that it counts once. A
/// meter outside of the server reads all of it, so that others in the server add nothing.
pub(super) fn idle_powers(devices: &[DeviceSpec], powers: &[Option<DevicePower>]) -> Vec<Option<Watts>> {
    let known = || devices.iter().zip(powers).filter_map(|(device, power)| Some((device, (*power)?)));
    let is_external = |power: &DevicePower| power.source == EnergySource::External;
    let share = |device: &DeviceSpec, power: DevicePower| {
        let of_server = || known().filter(|(other, _)| other.name.server == device.name.server);
        let is_outside = of_server().any(|(_, power)| is_external(&power));
        let sharing: Vec<DevicePower> = match is_outside {
            true => of_server().map(|(_, power)| power).collect(),
            false => of_server().filter(|other| share_meter((device, power), *other)).map(|(_, power)| power).collect(),
        };
        let idle: Vec<Watts> =
            sharing.iter().filter(|power| !is_outside || is_external(power)).map(|power| power.idle).collect();
        // Each of them read the meter at another time: their mean counts.
        Watts(idle.iter().copied().sum::<Watts>().0 / idle.len().max(1) as f64 / sharing.len().max(1) as f64)
    };
    devices.iter().zip(powers).map(|(device, power)| power.map(|power| share(device, power))).collect()
}

/// Whether one meter reads the energy of both devices of a server: a processor's package that of all CPU devices, a board's
/// sensors that of all devices; a GPU has its own.
fn share_meter(one: (&DeviceSpec, DevicePower), other: (&DeviceSpec, DevicePower)) -> bool {
    let ((device, power), (neighbour, near)) = (one, other);
    let is_same = device.name == neighbour.name;
    is_same
        || power.source == near.source
            && match power.source {
                EnergySource::External | EnergySource::Hwmon => true,
                EnergySource::Powercap => device.kind == neighbour.kind,
                EnergySource::Nvml => false,
            }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_agent::DeviceKind;
    use edgecut_graph::{DeviceName, units::Bytes};

    #[test]
    fn what_one_meter_reads_counts_once() {
        let device = |server: &str, name: &str| DeviceSpec {
            name: DeviceName::new(server, name),
            kind: if name.starts_with("gpu") { DeviceKind::Gpu } else { DeviceKind::Cpu },
            hardware: String::new(),
            engine: "tract 1".into(),
            threads: 1,
            memory: Bytes(1),
            host_link: None,
        };
        let power =
            |source, idle| Some(DevicePower { above_idle: Watts(1.0), idle: Watts(idle), source, idle_rows: 0 });
        let devices = [
            (device("a", "cpu0"), power(EnergySource::Powercap, 10.0)),
            (device("a", "cpu1"), power(EnergySource::Powercap, 14.0)),
            (device("a", "gpu0"), power(EnergySource::Nvml, 5.0)),
            (device("a", "gpu1"), power(EnergySource::Nvml, 7.0)),
            (device("b", "cpu"), power(EnergySource::Powercap, 8.0)),
            (device("c", "cpu"), power(EnergySource::External, 30.0)),
            (device("c", "gpu0"), power(EnergySource::External, 30.0)),
            (device("d", "cpu"), power(EnergySource::Hwmon, 2.0)),
            (device("d", "gpu0"), power(EnergySource::Hwmon, 3.0)),
            (device("e", "cpu"), power(EnergySource::External, 100.0)),
            (device("e", "gpu0"), power(EnergySource::Nvml, 30.0)),
            (device("f", "cpu"), None),
        ];
        let (devices, powers): (Vec<_>, Vec<_>) = devices.into_iter().unzip();
        let idle: Vec<Option<f64>> = idle_powers(&devices, &powers).iter().map(|idle| idle.map(|w| w.0)).collect();
        let want = [6.0, 6.0, 5.0, 7.0, 8.0, 15.0, 15.0, 1.25, 1.25, 50.0, 50.0].map(Some);
        assert_eq!((&idle[..11], idle[11]), (&want[..], None));
    }
}
