//! The energy counters of processor packages: RAPL, as the kernel's power capping framework shows it.
//!
//! Zones of packages are the folders `intel-rapl:N`, on AMD's processors too; `energy_uj` counts microjoules and starts again
//! from 0 beyond `max_energy_range_uj` (kernel: Documentation/power/powercap/powercap.rst). A package contains its subzones
//! `intel-rapl:N:M` (cores, memory on some servers), and `intel-rapl-mmio:N` is the same package by another interface: neither
//! is counted. The zone `psys` is the platform, which contains the packages. Counters tick every millisecond.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::{Absence, EnergyLost, counter::WrappingCounter, probe::EnergyProbe, sysfs};
use edgecut_graph::units::Joules;

/// All packages of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Powercap {
    packages: Vec<Package>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Package {
    /// `package-0`, or `package-0-die-1`.
    name: String,
    energy: PathBuf,
    /// In microjoules.
    range: Option<u64>,
}

impl Powercap {
    /// The packages below `folder`, which is `/sys/class/powercap`.
    ///
    /// # Errors
    /// If there are none, or one of them cannot be read: the sum of the others would not be the machine's.
    pub fn find(folder: &Path) -> Result<Powercap, Absence> {
        let entries = sysfs::entries(folder).ok_or_else(|| Absence::NoFolder(folder.to_path_buf()))?;
        let zones = entries.into_iter().filter(|entry| is_zone(entry)).map(|entry| folder.join(entry));
        let mut packages = Vec::new();
        for zone in zones {
            let name = zone.join("name");
            // Containers often have the zones without their contents.
            let name = sysfs::text(&name).map_err(|error| error.absence(name))?;
            if !name.starts_with("package") {
                continue;
            }
            let energy = zone.join("energy_uj");
            sysfs::number::<u64>(&energy).map_err(|error| error.absence(energy.clone()))?;
            let range = sysfs::number(&zone.join("max_energy_range_uj")).ok();
            packages.push(Package { name, energy, range });
        }
        match packages.is_empty() {
            true => Err(Absence::NoPackage(folder.to_path_buf())),
            false => Ok(Powercap { packages }),
        }
    }

    /// The names of the packages.
    pub fn parts(&self) -> String {
        self.packages.iter().map(|package| package.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Begins a measurement.
    ///
    /// # Errors
    /// If a counter can no longer be read.
    pub fn open(&self) -> Result<Box<dyn EnergyProbe>, EnergyLost> {
        let counter =
            |package: &Package| Ok((package.energy.clone(), WrappingCounter::new(package.read()?, package.range)));
        Ok(Box::new(PowercapProbe { counters: self.packages.iter().map(counter).collect::<Result<_, _>>()? }))
    }
}

impl Package {
    fn read(&self) -> Result<u64, EnergyLost> {
        sysfs::number(&self.energy).map_err(|error| error.lost(&self.energy))
    }
}

/// Whether a folder is a zone that may be a package: `intel-rapl:N`.
fn is_zone(name: &str) -> bool {
    let number = name.strip_prefix("intel-rapl:").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

struct PowercapProbe {
    counters: Vec<(PathBuf, WrappingCounter)>,
}

impl EnergyProbe for PowercapProbe {
    fn advance(&mut self, _now: Instant) -> Result<Joules, EnergyLost> {
        let mut microjoules = 0.0;
        for (file, counter) in &mut self.counters {
            let now = sysfs::number(file).map_err(|error| error.lost(file))?;
            microjoules += counter.advance(now) as f64;
        }
        Ok(Joules(microjoules / 1e6))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sysfs::tests::write, *};
    use std::{fs, os::unix::fs::PermissionsExt};

    /// A zone with a counter.
    fn zone(root: &Path, folder: &str, name: &str, energy: &str) -> PathBuf {
        let zone = write(root, folder, &[("name", name), ("max_energy_range_uj", "1000000000"), ("energy_uj", energy)]);
        zone.join("energy_uj")
    }

    #[test]
    fn packages_are_summed_through_wraps_and_nothing_else_is_counted() {
        let root = tempfile::tempdir().unwrap();
        let first = zone(root.path(), "intel-rapl:0", "package-0", "999000000");
        let second = zone(root.path(), "intel-rapl:1", "package-1", "5000000");
        for (folder, name) in
            [("intel-rapl:0:0", "core"), ("intel-rapl:2", "psys"), ("intel-rapl-mmio:0", "package-0"), ("dtpm", "x")]
        {
            zone(root.path(), folder, name, "7");
        }
        let found = Powercap::find(root.path()).unwrap();
        assert_eq!(found.parts(), "package-0, package-1");
        let mut probe = found.open().unwrap();
        let now = Instant::now();
        assert_eq!(probe.advance(now), Ok(Joules::ZERO));
        fs::write(&first, "500000\n").unwrap();
        fs::write(&second, "6000000\n").unwrap();
        assert_eq!(probe.advance(now), Ok(Joules(2.5)), "1.5 J through the wrap, and 1 J");
        fs::remove_file(&second).unwrap();
        let lost = probe.advance(now).unwrap_err().to_string();
        assert!(lost.contains("intel-rapl:1/energy_uj can no longer be read: No such file"), "{lost}");
        assert!(found.open().is_err());
    }

    #[test]
    fn what_is_absent_is_said() {
        let root = tempfile::tempdir().unwrap();
        let absence = || Powercap::find(root.path()).unwrap_err().to_string();
        let missing = root.path().join("none");
        assert_eq!(Powercap::find(&missing).unwrap_err(), Absence::NoFolder(missing));
        assert!(absence().starts_with("no zone of a processor's package below /"), "{}", absence());
        let file = zone(root.path(), "intel-rapl:0", "package-0", "energetic");
        assert!(absence().ends_with("intel-rapl:0/energy_uj: `energetic` is not a number"), "{}", absence());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
        // Root reads it all the same.
        if fs::File::open(&file).is_err() {
            assert_eq!(Powercap::find(root.path()).unwrap_err(), Absence::Permission(file.clone()));
        }
        fs::remove_file(&file).unwrap();
        assert!(absence().contains("energy_uj: No such file"), "{}", absence());
        fs::remove_file(file.with_file_name("name")).unwrap();
        assert!(absence().contains("intel-rapl:0/name: No such file"), "as in containers: {}", absence());
    }

    #[test]
    fn a_counter_of_root_alone_is_said_to_be_one() {
        let file = PathBuf::from("/sys/class/powercap/intel-rapl:0/energy_uj");
        let denied = sysfs::ReadError::Io(std::io::ErrorKind::PermissionDenied.into());
        let text = denied.absence(file.clone()).to_string();
        assert_eq!(
            text,
            format!("{0} is readable by root alone: run the agent as root, or `chmod a+r {0}`", file.display())
        );
    }
}
