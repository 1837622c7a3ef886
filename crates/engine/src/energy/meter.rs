//! The energy meter of a device, and a measurement in progress.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

#[cfg(feature = "cuda")]
use super::nvml::NvmlGpu;
use super::{
    AbsentSource, EnergyLost, EnergySource, NoEnergySource, hwmon::Hwmon, power_chips::Part, powercap::Powercap,
    probe::EnergyProbe,
};
use edgecut_graph::units::Joules;

/// Where the kernel's classes of devices are.
fn classes() -> PathBuf {
    let sysfs = env::var_os("EDGECUT_SYSFS").filter(|folder| !folder.is_empty());
    sysfs.map_or_else(|| PathBuf::from("/sys"), PathBuf::from).join("class")
}

/// How often power is read where it is integrated, while a measurement is in progress.
const SAMPLING: Duration = Duration::from_millis(50);

/// How often counters are read during a long measurement, so that none wraps unseen: the smallest ranges, of 65 kJ, last a
/// minute at 1 kW.
const WRAP_CHECK: Duration = Duration::from_secs(10);

/// What tells the energy of a device: of a processor its package counters, else the sensors of processor or board; of a
/// GPU its own counter, else the sensors of the board.
#[derive(Clone)]
pub struct EnergyMeter {
    meter: Meter,
}

#[derive(Clone)]
enum Meter {
    Powercap(Powercap),
    Hwmon(Hwmon),
    #[cfg(feature = "cuda")]
    Nvml(NvmlGpu),
}

/// A measurement in progress, which ends when it is dropped. Meanwhile a thread reads the source as often as it needs.
pub struct EnergyReading {
    shared: Arc<Shared>,
    /// Whether only the thread reads the source: sensors take milliseconds.
    is_sampled: bool,
    /// Dropped to end the thread.
    stop: Option<mpsc::Sender<()>>,
    sampler: Option<JoinHandle<()>>,
}

/// Energy, and the time in which it was consumed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MeteredEnergy {
    pub energy: Joules,
    pub time: Duration,
}

struct Shared {
    start: Instant,
    probe: Mutex<Box<dyn EnergyProbe>>,
    progress: Mutex<Result<MeteredEnergy, EnergyLost>>,
}

impl EnergyMeter {
    /// The meter of this machine's processor. `EDGECUT_SYSFS` names another folder than `/sys`, such as a container's mount of
    /// the host's.
    ///
    /// # Errors
    /// If the system has none: every source that was looked for, and why it is absent.
    pub fn of_processor() -> Result<EnergyMeter, NoEnergySource> {
        EnergyMeter::of_processor_in(&classes())
    }

    /// The same by the classes of devices in a folder.
    ///
    /// # Errors
    /// As [`EnergyMeter::of_processor`].
    pub fn of_processor_in(classes: &Path) -> Result<EnergyMeter, NoEnergySource> {
        let powercap = match Powercap::find(&classes.join("powercap")) {
            Ok(found) => return Ok(EnergyMeter { meter: Meter::Powercap(found) }),
            Err(why) => AbsentSource { source: EnergySource::Powercap, why },
        };
        // The processor first, as powercap has it: what both measure must not be counted twice.
        match Hwmon::find(&classes.join("hwmon"), &[Part::Processor, Part::Board]) {
            Ok(found) => Ok(EnergyMeter { meter: Meter::Hwmon(found) }),
            Err(why) => Err(NoEnergySource(vec![powercap, AbsentSource { source: EnergySource::Hwmon, why }])),
        }
    }

    /// The meter of the GPU at `bus_id`.
    ///
    /// # Errors
    /// As [`EnergyMeter::of_processor`].
    #[cfg(feature = "cuda")]
    pub(crate) fn of_gpu(bus_id: Option<&str>) -> Result<EnergyMeter, NoEnergySource> {
        let found = bus_id.ok_or(super::Absence::NoBusId).and_then(NvmlGpu::find);
        let nvml = match found {
            Ok(found) => return Ok(EnergyMeter { meter: Meter::Nvml(found) }),
            Err(why) => AbsentSource { source: EnergySource::Nvml, why },
        };
        // Only boards with a GPU of their own, such as Jetsons, have sensors that measure it.
        match Hwmon::find(&classes().join("hwmon"), &[Part::Board]) {
            Ok(found) => Ok(EnergyMeter { meter: Meter::Hwmon(found) }),
            Err(why) => Err(NoEnergySource(vec![nvml, AbsentSource { source: EnergySource::Hwmon, why }])),
        }
    }

    pub fn source(&self) -> EnergySource {
        match &self.meter {
            Meter::Powercap(_) => EnergySource::Powercap,
            Meter::Hwmon(_) => EnergySource::Hwmon,
            #[cfg(feature = "cuda")]
            Meter::Nvml(_) => EnergySource::Nvml,
        }
    }

    /// The shortest time over which a difference says something: some ten ticks of a counter, a few samples of a sensor.
    pub fn shortest(&self) -> Duration {
        match &self.meter {
            Meter::Hwmon(hwmon) if hwmon.is_sampled() => 2 * SAMPLING,
            Meter::Powercap(_) | Meter::Hwmon(_) => Duration::from_millis(10),
            #[cfg(feature = "cuda")]
            Meter::Nvml(_) => Duration::from_millis(200),
        }
    }

    /// Begins a measurement.
    ///
    /// # Errors
    /// If the source can no longer be read, or no thread can be started.
    pub fn start(&self) -> Result<EnergyReading, EnergyLost> {
        let start = Instant::now();
        let probe = match &self.meter {
            Meter::Powercap(powercap) => powercap.open()?,
            Meter::Hwmon(hwmon) => hwmon.open(start)?,
            #[cfg(feature = "cuda")]
            Meter::Nvml(gpu) => gpu.open()?,
        };
        let is_sampled = matches!(&self.meter, Meter::Hwmon(hwmon) if hwmon.is_sampled());
        let interval = if is_sampled { SAMPLING } else { WRAP_CHECK };
        let (probe, progress) = (Mutex::new(probe), Mutex::new(Ok(MeteredEnergy::default())));
        let shared = Arc::new(Shared { start, probe, progress });
        let (stop, stopped) = mpsc::channel();
        let sampled = Arc::clone(&shared);
        let sampler = thread::Builder::new().name("energy".to_string()).spawn(move || {
            while stopped.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                if sampled.advance().is_err() {
                    return;
                }
            }
        });
        let failed = |error: std::io::Error| EnergyLost { what: self.to_string(), why: format!("no thread: {error}") };
        Ok(EnergyReading { shared, is_sampled, stop: Some(stop), sampler: Some(sampler.map_err(failed)?) })
    }
}

/// The source and its parts: `powercap: package-0, package-1`.
impl fmt::Display for EnergyMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = match &self.meter {
            Meter::Powercap(powercap) => powercap.parts(),
            Meter::Hwmon(hwmon) => hwmon.parts(),
            #[cfg(feature = "cuda")]
            Meter::Nvml(gpu) => gpu.parts(),
        };
        write!(f, "{}: {parts}", self.source())
    }
}

impl EnergyReading {
    /// The energy since the start, never less than before, and the time until it was last read: now for a counter, a moment
    /// ago for a sensor.
    ///
    /// # Errors
    /// If the source can no longer be read, now or at any time since the start.
    pub fn so_far(&self) -> Result<MeteredEnergy, EnergyLost> {
        if self.is_sampled { lock(&self.shared.progress).clone() } else { self.shared.advance() }
    }
}

impl Drop for EnergyReading {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread is reported by its hook.
        let _ = self.sampler.take().map(JoinHandle::join);
    }
}

impl Shared {
    /// Reads the source.
    fn advance(&self) -> Result<MeteredEnergy, EnergyLost> {
        let mut probe = lock(&self.probe);
        let before = lock(&self.progress).clone()?;
        let now = Instant::now();
        let more = probe.advance(now);
        let time = now.saturating_duration_since(self.start);
        let progress = more.map(|more| MeteredEnergy { energy: before.energy + more, time });
        lock(&self.progress).clone_from(&progress);
        progress
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{super::sysfs::tests::write, *};
    use std::fs;

    #[test]
    fn a_processor_has_a_meter_or_every_absent_source_is_named() {
        match EnergyMeter::of_processor() {
            Ok(meter) => {
                let reading = meter.start().unwrap();
                thread::sleep(meter.shortest());
                assert!(reading.so_far().unwrap().energy <= reading.so_far().unwrap().energy);
            }
            Err(NoEnergySource(absent)) => {
                let sources: Vec<EnergySource> = absent.iter().map(|absent| absent.source).collect();
                assert_eq!(sources, [EnergySource::Powercap, EnergySource::Hwmon]);
            }
        }
        let root = tempfile::tempdir().unwrap();
        let absent = EnergyMeter::of_processor_in(root.path()).err().unwrap().to_string();
        let folder = root.path().display();
        assert_eq!(absent, format!("powercap: no folder {folder}/powercap; hwmon: no folder {folder}/hwmon"));
    }

    #[test]
    fn a_reading_goes_on_until_its_counter_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let counter = [("name", "package-0"), ("energy_uj", "100"), ("max_energy_range_uj", "2000000")];
        let zone = write(root.path(), "powercap/intel-rapl:0", &counter);
        let meter = EnergyMeter::of_processor_in(root.path()).unwrap();
        assert_eq!((meter.to_string(), meter.source()), ("powercap: package-0".to_string(), EnergySource::Powercap));
        let reading = meter.start().unwrap();
        let energy = || reading.so_far().unwrap().energy;
        assert_eq!(energy(), Joules::ZERO);
        fs::write(zone.join("energy_uj"), "1500100\n").unwrap();
        assert_eq!(energy(), Joules(1.5));
        fs::write(zone.join("energy_uj"), "500100\n").unwrap();
        assert_eq!(energy(), Joules(2.5));
        let (before, after) = (reading.so_far().unwrap().time, reading.so_far().unwrap().time);
        assert!(before < after);
        fs::remove_file(zone.join("energy_uj")).unwrap();
        let lost = reading.so_far().unwrap_err();
        fs::write(zone.join("energy_uj"), "900100\n").unwrap();
        assert_eq!(reading.so_far(), Err(lost), "what was missed is unknown");
    }

    #[test]
    fn power_is_sampled_while_a_reading_is_in_progress() {
        let root = tempfile::tempdir().unwrap();
        let chip = write(root.path(), "hwmon/hwmon0", &[("name", "ina226"), ("power1_input", "4000000")]);
        let meter = EnergyMeter::of_processor_in(root.path()).unwrap();
        let reading = meter.start().unwrap();
        let found = loop {
            let found = reading.so_far().unwrap();
            if found.time >= 2 * SAMPLING {
                break found;
            }
            thread::sleep(SAMPLING / 5);
        };
        assert!((found.energy.0 - 4.0 * found.time.as_secs_f64()).abs() < 1e-9, "{found:?}");
        fs::remove_file(chip.join("power1_input")).unwrap();
        assert!(meter.start().is_err());
    }
}
