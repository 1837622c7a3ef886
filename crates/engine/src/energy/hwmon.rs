//! Power and energy sensors of boards and processors: the kernel's hardware monitoring.
//!
//! A chip is a folder `hwmonN` with a `name` and sensors (kernel: Documentation/hwmon/sysfs-interface.rst): `energyN_input` counts
//! microjoules, `powerN_input` or `powerN_average` is in microwatts. The INA3221 of Jetsons has neither, but for each rail a voltage `inN_input` in millivolts
//! and a current `currN_input` in milliamperes (Documentation/hwmon/ina3221.rst). Power is integrated over time by the trapezoidal rule.
//!
//! Which chips and rails are counted is in `power_chips`.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    Absence, EnergyLost,
    counter::WrappingCounter,
    power_chips::{CHANNELS, CHIPS, Chip, NOT_CONNECTED, Part, WHOLE, WITHIN},
    probe::EnergyProbe,
    sysfs::{self, ReadError},
};
use edgecut_graph::units::{Joules, Micros, Watts};

/// The sensors that together tell the power of a board or a processor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hwmon {
    rails: Vec<Rail>,
}

/// One sensor, or a voltage and a current.
#[derive(Debug, Clone, PartialEq)]
struct Rail {
    chip: String,
    label: String,
    sensor: Sensor,
}

#[derive(Debug, Clone, PartialEq)]
enum Sensor {
    Energy(PathBuf),
    Power(PathBuf),
    Pair { voltage: PathBuf, current: PathBuf },
}

impl Hwmon {
    /// The sensors below `folder`, which is `/sys/class/hwmon`: of the first of `parts` that has any.
    ///
    /// # Errors
    /// If there are none, or one of those that there are cannot be read: the sum of the others would say something else.
    pub fn find(folder: &Path, parts: &[Part]) -> Result<Hwmon, Absence> {
        let entries = sysfs::entries(folder).ok_or_else(|| Absence::NoFolder(folder.to_path_buf()))?;
        let chips: Vec<(PathBuf, String)> = entries
            .into_iter()
            .map(|entry| folder.join(entry))
            .filter_map(|chip| Some((chip.clone(), sysfs::text(&chip.join("name")).ok()?)))
            .collect();
        let mut unreadable = None;
        for part in parts {
            match rails_of(&chips, *part) {
                Ok(rails) if rails.is_empty() => {}
                Ok(rails) => return Ok(Hwmon { rails: counted(rails) }),
                Err(absence) => unreadable = unreadable.or(Some(absence)),
            }
        }
        let found = chips.into_iter().map(|(_, name)| name).collect();
        Err(unreadable.unwrap_or_else(|| Absence::NoSensor { folder: folder.to_path_buf(), found }))
    }

    /// The chips with their rails.
    pub fn parts(&self) -> String {
        let each: Vec<String> = self.rails.iter().map(|rail| format!("{} {}", rail.chip, rail.label)).collect();
        each.join(", ")
    }

    /// Whether power is integrated, so that it must be read often.
    pub fn is_sampled(&self) -> bool {
        self.rails.iter().any(|rail| !matches!(rail.sensor, Sensor::Energy(_)))
    }

    /// Begins a measurement at `now`.
    ///
    /// # Errors
    /// If a sensor can no longer be read.
    pub fn open(&self, now: Instant) -> Result<Box<dyn EnergyProbe>, EnergyLost> {
        let rails = self.rails.iter().map(|rail| RailProbe::open(&rail.sensor, now)).collect::<Result<_, _>>()?;
        Ok(Box::new(HwmonProbe { rails }))
    }
}

/// The rails of all chips that measure `part`.
fn rails_of(chips: &[(PathBuf, String)], part: Part) -> Result<Vec<Rail>, Absence> {
    let mut rails = Vec::new();
    for (folder, name) in chips {
        if let Some(chip) = CHIPS.iter().find(|chip| chip.name == name && chip.part == part) {
            rails.extend(rails_of_chip(folder, chip)?);
        }
    }
    Ok(rails)
}

/// Of several ways to tell the same, the most exact: energy before power before voltage and current.
fn rails_of_chip(folder: &Path, chip: &Chip) -> Result<Vec<Rail>, Absence> {
    let files = sysfs::entries(folder).unwrap_or_default();
    let numbers = |kind: &str, suffix: &str| -> Vec<u32> {
        let number = |file: &String| file.strip_prefix(kind)?.strip_suffix(suffix)?.parse().ok();
        let mut found: Vec<u32> = files.iter().filter_map(number).collect();
        found.sort_unstable();
        found
    };
    let file = |name: String| folder.join(name);
    let mut sensors: Vec<(String, Sensor)> = numbers("energy", "_input")
        .into_iter()
        .map(|n| (format!("energy{n}"), Sensor::Energy(file(format!("energy{n}_input")))))
        .collect();
    if sensors.is_empty() {
        let inputs = numbers("power", "_input");
        let averages = numbers("power", "_average").into_iter().filter(|n| !inputs.contains(n));
        let named = inputs.iter().map(|n| (*n, "input")).chain(averages.map(|n| (n, "average")));
        let sensor = |(n, of): (u32, &str)| (format!("power{n}"), Sensor::Power(file(format!("power{n}_{of}"))));
        sensors = named.map(sensor).collect();
    }
    if sensors.is_empty() {
        let currents = numbers("curr", "_input");
        let both = numbers("in", "_input").into_iter().filter(|n| CHANNELS.contains(n) && currents.contains(n));
        let pair = |n: u32| {
            let (voltage, current) = (file(format!("in{n}_input")), file(format!("curr{n}_input")));
            (format!("in{n}"), Sensor::Pair { voltage, current })
        };
        sensors = both.map(pair).collect();
    }
    let mut rails = Vec::new();
    for (name, sensor) in sensors {
        // A chip with one rail may be labelled as a whole.
        let labels = [format!("{name}_label"), "label".to_string()];
        let label = labels.iter().find_map(|label| sysfs::text(&folder.join(label)).ok()).unwrap_or(name);
        if label == NOT_CONNECTED || !label.starts_with(chip.labels) {
            continue;
        }
        match sensor.check() {
            Ok(()) => rails.push(Rail { chip: chip.name.to_string(), label, sensor }),
            Err((error, _)) if error.is_no_data() => {}
            Err((error, file)) => return Err(error.absence(file)),
        }
    }
    Ok(rails)
}

/// The rail that feeds all others, else all that are not within another.
fn counted(rails: Vec<Rail>) -> Vec<Rail> {
    let has = |label: &str| rails.iter().any(|rail| rail.label == label);
    match WHOLE.iter().find(|label| has(label)) {
        Some(whole) => rails.into_iter().filter(|rail| rail.label == *whole).take(1).collect(),
        None => {
            let is_within = |rail: &Rail| WITHIN.iter().any(|(part, whole)| rail.label == *part && has(whole));
            let kept: Vec<bool> = rails.iter().map(|rail| !is_within(rail)).collect();
            rails.into_iter().zip(kept).filter_map(|(rail, is_kept)| is_kept.then_some(rail)).collect()
        }
    }
}

impl Sensor {
    /// Whether it can be read.
    fn check(&self) -> Result<(), (ReadError, PathBuf)> {
        match self {
            Sensor::Energy(file) => read::<u64>(file).map(drop),
            Sensor::Power(_) | Sensor::Pair { .. } => self.power().map(drop),
        }
    }

    /// The power now; zero for a counter. A current that flows back is none.
    fn power(&self) -> Result<Watts, (ReadError, PathBuf)> {
        let watts = match self {
            Sensor::Energy(_) => 0.0,
            Sensor::Power(file) => read::<i64>(file)? as f64 / 1e6,
            Sensor::Pair { voltage, current } => read::<i64>(voltage)? as f64 * read::<i64>(current)? as f64 / 1e6,
        };
        Ok(Watts(watts.max(0.0)))
    }
}

fn read<T: std::str::FromStr>(file: &Path) -> Result<T, (ReadError, PathBuf)> {
    sysfs::number(file).map_err(|error| (error, file.to_path_buf()))
}

fn lost((error, file): (ReadError, PathBuf)) -> EnergyLost {
    error.lost(&file)
}

struct HwmonProbe {
    rails: Vec<RailProbe>,
}

enum RailProbe {
    Counter {
        file: PathBuf,
        counter: WrappingCounter,
    },
    /// With the last sample.
    Sampled {
        sensor: Sensor,
        at: Instant,
        power: Watts,
    },
}

impl RailProbe {
    fn open(sensor: &Sensor, now: Instant) -> Result<RailProbe, EnergyLost> {
        Ok(match sensor {
            Sensor::Energy(file) => RailProbe::Counter {
                file: file.clone(),
                counter: WrappingCounter::new(read(file).map_err(lost)?, None),
            },
            _ => RailProbe::Sampled { sensor: sensor.clone(), at: now, power: sensor.power().map_err(lost)? },
        })
    }
}

impl EnergyProbe for HwmonProbe {
    fn advance(&mut self, now: Instant) -> Result<Joules, EnergyLost> {
        let mut sum = Joules::ZERO;
        for rail in &mut self.rails {
            sum = sum
                + match rail {
                    RailProbe::Counter { file, counter } => {
                        Joules(counter.advance(read(file).map_err(lost)?) as f64 / 1e6)
                    }
                    RailProbe::Sampled { sensor, at, power } => {
                        let before = std::mem::replace(power, sensor.power().map_err(lost)?);
                        let elapsed = now.saturating_duration_since(std::mem::replace(at, now));
                        Watts((before + *power).0 / 2.0).during(Micros::from(elapsed))
                    }
                };
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sysfs::tests::write, *};
    use std::{fs, time::Duration};

    /// A chip with files.
    fn chip(root: &Path, folder: &str, name: &str, files: &[(&str, &str)]) -> PathBuf {
        write(root, folder, files);
        write(root, folder, &[("name", name)])
    }

    const ANY: &[Part] = &[Part::Processor, Part::Board];

    fn parts(root: &Path) -> String {
        Hwmon::find(root, ANY).map_or_else(|absence| absence.to_string(), |found| found.parts())
    }

    /// The three rails of an INA3221 of a Jetson Orin Nano, whose further voltages are those of its shunts.
    const ORIN_NANO: &[(&str, &str)] = &[
        ("in1_label", "VDD_IN"),
        ("in1_input", "5000"),
        ("curr1_input", "1000"),
        ("in2_label", "VDD_CPU_GPU_CV"),
        ("in2_input", "5000"),
        ("curr2_input", "400"),
        ("in3_label", "VDD_SOC"),
        ("in3_input", "5000"),
        ("curr3_input", "300"),
        ("in4_input", "4"),
        ("curr4_input", "1700"),
        ("in7_label", "sum of shunt voltages"),
    ];

    #[test]
    fn the_input_of_a_jetson_is_integrated_by_the_trapezoidal_rule() {
        let root = tempfile::tempdir().unwrap();
        let folder = chip(root.path(), "hwmon3", "ina3221", ORIN_NANO);
        chip(root.path(), "hwmon1", "tegra_thermal", &[("power1_input", "9000000")]);
        let found = Hwmon::find(root.path(), &[Part::Board]).unwrap();
        assert!(found.parts() == "ina3221 VDD_IN" && found.is_sampled(), "{}", found.parts());
        let start = Instant::now();
        let mut probe = found.open(start).unwrap();
        fs::write(folder.join("curr1_input"), "3000\n").unwrap();
        let first = probe.advance(start + Duration::from_millis(500)).unwrap();
        assert!((first.0 - 5.0).abs() < 1e-9, "5 W to 15 W in half a second: {first}");
        fs::write(folder.join("curr1_input"), "-2\n").unwrap();
        let second = probe.advance(start + Duration::from_millis(1500)).unwrap();
        assert!((second.0 - 7.5).abs() < 1e-9, "15 W to nothing in a second: {second}");
        assert_eq!(probe.advance(start), Ok(Joules::ZERO), "a clock does not go back");
        fs::write(folder.join("curr1_input"), "x\n").unwrap();
        let lost = probe.advance(start + Duration::from_secs(2)).unwrap_err().to_string();
        assert!(lost.contains("curr1_input can no longer be read: `x` is not a number"), "{lost}");
    }

    #[test]
    fn rails_of_a_board_without_an_input_are_summed_but_for_those_within_others() {
        let rail = |n: u32, label: &str| {
            [(format!("in{n}_label"), label.to_string()), (format!("in{n}_input"), "12000".to_string())]
                .into_iter()
                .chain([(format!("curr{n}_input"), "500".to_string())])
                .collect::<Vec<_>>()
        };
        let root = tempfile::tempdir().unwrap();
        for (folder, labels) in
            [("hwmon0", ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"]), ("hwmon1", ["NC", "VDDQ_VDD2_1V8AO", "NC"])]
        {
            let files: Vec<_> = (1..).zip(labels).flat_map(|(n, label)| rail(n, label)).collect();
            let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
            chip(root.path(), folder, "ina3221", &files);
        }
        assert_eq!(parts(root.path()), "ina3221 VDD_GPU_SOC, ina3221 VDD_CPU_CV, ina3221 VIN_SYS_5V0");
        chip(root.path(), "hwmon2", "ina238", &[("label", "VIN"), ("power1_input", "42000000")]);
        assert_eq!(parts(root.path()), "ina238 VIN", "the input of a Jetson Thor");
    }

    #[test]
    fn counters_come_before_power_and_sockets_contain_cores() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("energy1_label", "Ecore000"),
            ("energy1_input", "5"),
            ("energy17_label", "Esocket0"),
            ("energy17_input", "9000000"),
        ];
        let folder = chip(root.path(), "hwmon0", "amd_energy", &files);
        let found = Hwmon::find(root.path(), ANY).unwrap();
        assert!(found.parts() == "amd_energy Esocket0" && !found.is_sampled());
        let mut probe = found.open(Instant::now()).unwrap();
        fs::write(folder.join("energy17_input"), "9500000\n").unwrap();
        assert_eq!(probe.advance(Instant::now()), Ok(Joules(0.5)));
        fs::remove_file(folder.join("energy17_input")).unwrap();
        assert!(probe.advance(Instant::now()).is_err());
        let folder = chip(root.path(), "hwmon0", "fam15h_power", &[("power1_average", "1"), ("power1_input", "2")]);
        fs::remove_file(folder.join("energy1_input")).unwrap();
        assert_eq!(parts(root.path()), "fam15h_power power1");
        assert!(Hwmon::find(root.path(), &[Part::Board]).is_err(), "no part of a GPU");
    }

    #[test]
    fn what_is_absent_is_said() {
        let root = tempfile::tempdir().unwrap();
        let none = "no power sensor of a board or a processor below";
        assert!(parts(root.path()).starts_with(none) && !parts(root.path()).contains("only"));
        chip(root.path(), "hwmon0", "BAT0", &[("power1_input", "7000000")]);
        chip(root.path(), "hwmon1", "nvme", &[]);
        fs::create_dir(root.path().join("hwmon2")).unwrap();
        assert!(parts(root.path()).ends_with(", only BAT0, nvme"), "{}", parts(root.path()));
        let folder = chip(root.path(), "hwmon3", "ina3221", ORIN_NANO);
        fs::write(folder.join("in2_input"), "volts").unwrap();
        assert!(parts(root.path()).ends_with("hwmon3/in2_input: `volts` is not a number"), "{}", parts(root.path()));
        fs::remove_file(folder.join("in2_input")).unwrap();
        assert_eq!(parts(root.path()), "ina3221 VDD_IN", "a current without its voltage is no rail");
        let missing = root.path().join("none");
        assert_eq!(Hwmon::find(&missing, ANY), Err(Absence::NoFolder(missing)));
    }
}
