//! Measures the energy of items, on devices with a meter.
//!
//! Samples of time cannot be measured one by one: a counter ticks every millisecond at best, and between samples caches are
//! flushed. So an item is run back to back for a while, and what it consumes is the power meanwhile times its median time.

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::Energy;
use edgecut_engine::{
    EngineError, Executable,
    energy::{EnergyMeter, MeteredEnergy},
};
use edgecut_graph::{
    TensorData,
    units::{Joules, Micros, Watts},
};

/// A device with a meter, and what it draws when it does nothing.
pub struct MeteredDevice {
    meter: EnergyMeter,
    /// The last measurement, `None` if it failed, and when it was made.
    idle: Mutex<Option<(Instant, Option<Watts>)>>,
}

/// How long the power of the idle device is measured, at least and at most.
const IDLE_TIME: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));

/// How long it holds. Many profiles of one shard each follow one another.
const IDLE_AGE: Duration = Duration::from_secs(300);

/// How many times the shortest time of the meter an item is run if its budget allows.
const TIMES: u32 = 5;

impl MeteredDevice {
    pub fn new(meter: EnergyMeter) -> MeteredDevice {
        MeteredDevice { meter, idle: Mutex::default() }
    }

    pub fn meter(&self) -> &EnergyMeter {
        &self.meter
    }

    /// Its power while this thread sleeps; `None` if its meter does not tell it.
    fn idle(&self) -> Option<Watts> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, power)) = *idle
            && at.elapsed() < IDLE_AGE
        {
            return power;
        }
        let time = (10 * self.meter.shortest()).clamp(IDLE_TIME.0, IDLE_TIME.1);
        let power = power(&self.meter, || {
            thread::sleep(time);
            Ok(1)
        });
        let power = power.ok().flatten().map(|(power, _)| power);
        *idle = Some((Instant::now(), power));
        power
    }
}

/// What measures the energy of the items of one profile.
pub(super) struct ItemEnergy<'a> {
    device: &'a MeteredDevice,
    idle: Watts,
}

impl<'a> ItemEnergy<'a> {
    /// Measures the idle device, unless that was done a moment ago. `None` without a meter, or if it tells nothing.
    pub fn begin(device: Option<&'a MeteredDevice>) -> Option<ItemEnergy<'a>> {
        device.and_then(|device| Some(ItemEnergy { device, idle: device.idle()? }))
    }

    /// The time of an item's share of the budget that is kept for its energy.
    pub fn time(&self, share: Duration) -> Duration {
        (TIMES * self.device.meter.shortest()).min(share / 4)
    }

    /// The energy of a run of `model`, which takes `time`: runs it until `until`, or for as long as the meter needs. Where such a
    /// run takes longer than `time`, as with copies to and from a GPU, the power above idle is that of all of it.
    ///
    /// # Errors
    /// If it cannot be run.
    pub fn measure(
        &self,
        model: &mut dyn Executable,
        inputs: &[TensorData],
        time: Micros,
        until: Instant,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Energy>, EngineError> {
        let meter = &self.device.meter;
        let (least, most) = (meter.shortest(), TIMES * meter.shortest());
        let found = power(meter, || {
            let (start, mut runs, mut outputs) = (Instant::now(), 0, Vec::new());
            loop {
                (outputs, _) = model.run_measured(model.next_inputs(inputs, outputs))?;
                runs += 1;
                let (now, elapsed) = (Instant::now(), start.elapsed());
                if elapsed >= most || (elapsed >= least && now >= until) || is_cancelled() {
                    return Ok(runs);
                }
            }
        })?;
        let energy = |(power, run): (Watts, Micros)| {
            let above_idle = Watts((power - self.idle).0.max(0.0));
            let run = self.idle.during(time) + above_idle.during(run.max(time));
            Energy { run, idle: self.idle, source: meter.source() }
        };
        Ok(found.map(energy))
    }
}

/// The mean power during `work`, and the time of one of as many runs as it makes; `None` if the meter is lost, or stands still,
/// as counters of some virtual machines do.
///
/// # Errors
/// Those of `work`.
fn power(
    meter: &EnergyMeter,
    work: impl FnOnce() -> Result<u32, EngineError>,
) -> Result<Option<(Watts, Micros)>, EngineError> {
    let Ok(reading) = meter.start() else {
        return Ok(None);
    };
    let start = Instant::now();
    let runs = work()?;
    let run = Micros::from(start.elapsed() / runs.max(1));
    let counts = |found: &MeteredEnergy| found.energy > Joules::ZERO;
    Ok(reading.so_far().ok().filter(counts).map(|found| (found.energy.over(Micros::from(found.time)), run)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_engine::{Engine, TractEngine, energy::EnergySource};
    use edgecut_graph::{DType, Graph, Operator, Origin, TensorType};
    use edgecut_values::seeded;
    use std::{fs, path::Path};

    /// A sensor of 3 W.
    fn device(root: &Path) -> MeteredDevice {
        let chip = root.join("hwmon/hwmon0");
        fs::create_dir_all(&chip).unwrap();
        fs::write(chip.join("name"), "ina226\n").unwrap();
        fs::write(chip.join("power1_input"), "3000000\n").unwrap();
        MeteredDevice::new(EnergyMeter::of_processor_in(root).unwrap())
    }

    fn model() -> (Box<dyn Executable>, Vec<TensorData>) {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[8, 8]);
        let input = graph.add_tensor("x", ty.clone(), Origin::Input);
        let relu = graph.add_operator(Operator::new("nn.relu", [input]), std::slice::from_ref(&ty));
        graph.outputs.push(graph.operator(relu).outputs[0]);
        let inputs = vec![seeded("x", &ty).unwrap()];
        let loaded = TractEngine::new(1).unwrap().load(&graph, &|_| Err(EngineError::Other(String::new()))).unwrap();
        (loaded, inputs)
    }

    #[test]
    fn energy_is_power_times_the_median_time() {
        let root = tempfile::tempdir().unwrap();
        let device = device(root.path());
        let energy = ItemEnergy::begin(Some(&device)).unwrap();
        let (mut model, inputs) = model();
        let start = Instant::now();
        let found = energy.measure(&mut *model, &inputs, Micros(2000.0), start, &|| false).unwrap().unwrap();
        assert!(start.elapsed() >= device.meter().shortest(), "even without time left");
        assert!((found.run.0 - 0.006).abs() < 1e-9 && (found.idle.0 - 3.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.source, EnergySource::Hwmon);
        let later = Instant::now() + Duration::from_secs(3600);
        let mut measured = |until| {
            let start = Instant::now();
            energy.measure(&mut *model, &inputs, Micros(1.0), until, &|| false).unwrap().unwrap();
            start.elapsed()
        };
        assert!(measured(later) >= TIMES * device.meter().shortest());
        assert_eq!(energy.time(Duration::from_millis(40)), Duration::from_millis(10));
    }

    #[test]
    fn the_idle_device_is_measured_once_and_a_lost_meter_tells_nothing() {
        let root = tempfile::tempdir().unwrap();
        let device = device(root.path());
        assert!(ItemEnergy::begin(Some(&device)).is_some() && ItemEnergy::begin(None).is_none());
        let start = Instant::now();
        let energy = ItemEnergy::begin(Some(&device)).unwrap();
        assert!(start.elapsed() < IDLE_TIME.0, "it was measured a moment ago");
        fs::remove_file(root.path().join("hwmon/hwmon0/power1_input")).unwrap();
        let (mut model, inputs) = model();
        assert_eq!(energy.measure(&mut *model, &inputs, Micros(1.0), start, &|| false).unwrap(), None);
        *device.idle.lock().unwrap() = None;
        assert!(ItemEnergy::begin(Some(&device)).is_none());
        let start = Instant::now();
        assert!(
            ItemEnergy::begin(Some(&device)).is_none() && start.elapsed() < IDLE_TIME.0,
            "as was found a moment ago"
        );
    }
}
