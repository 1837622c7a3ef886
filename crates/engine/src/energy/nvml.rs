//! The energy counter of an NVIDIA GPU: `nvmlDeviceGetTotalEnergyConsumption`, in millijoules since the driver was loaded, of GPUs
//! since Volta (NVML API reference, Device Queries). The library comes with the driver and is loaded at run time.
//!
//! The counter is refreshed every 20 to 100 ms, depending on the GPU (Yang, Adamek, Armour, "Part-time Power Measurements", 2023), and
//! is of the whole GPU: of all processes, and of all instances if it is partitioned.

use std::{error::Error, ffi::OsStr, sync::Arc, time::Instant};

use nvml_wrapper::{Nvml, error::NvmlError};

use super::{Absence, EnergyLost, counter::WrappingCounter, probe::EnergyProbe};
use edgecut_graph::units::Joules;

/// The library of the driver. Its name without a version is a link that only development packages have.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// One GPU with a counter.
#[derive(Clone)]
pub(super) struct NvmlGpu {
    nvml: Arc<Nvml>,
    /// As CUDA tells it: the order of GPUs differs between CUDA and NVML.
    bus_id: String,
    name: String,
}

impl NvmlGpu {
    /// The GPU at `bus_id`.
    ///
    /// # Errors
    /// If the library cannot be loaded, or the GPU has no counter.
    pub fn find(bus_id: &str) -> Result<NvmlGpu, Absence> {
        let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init();
        // Of a library that is not there, the message of the dynamic loader is the cause.
        let reason = |error: NvmlError| error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let nvml = nvml.map_err(|error| Absence::Library { library: LIBRARY, why: reason(error) })?;
        let absent = |error: NvmlError| Absence::Gpu { bus_id: bus_id.to_string(), why: error.to_string() };
        let name = nvml.device_by_pci_bus_id(bus_id).and_then(|gpu| {
            gpu.total_energy_consumption()?;
            gpu.name()
        });
        let name = name.map_err(absent)?;
        Ok(NvmlGpu { nvml: Arc::new(nvml), bus_id: bus_id.to_string(), name })
    }

    /// The GPU's name and place.
    pub fn parts(&self) -> String {
        format!("{} at {}", self.name, self.bus_id)
    }

    /// Begins a measurement.
    ///
    /// # Errors
    /// If the counter can no longer be read.
    pub fn open(&self) -> Result<Box<dyn EnergyProbe>, EnergyLost> {
        let counter = WrappingCounter::new(self.millijoules()?, None);
        Ok(Box::new(NvmlProbe { gpu: self.clone(), counter }))
    }

    fn millijoules(&self) -> Result<u64, EnergyLost> {
        let told = self.nvml.device_by_pci_bus_id(self.bus_id.as_str()).and_then(|gpu| gpu.total_energy_consumption());
        told.map_err(|error| EnergyLost { what: self.parts(), why: error.to_string() })
    }
}

struct NvmlProbe {
    gpu: NvmlGpu,
    counter: WrappingCounter,
}

impl EnergyProbe for NvmlProbe {
    fn advance(&mut self, _now: Instant) -> Result<Joules, EnergyLost> {
        Ok(Joules(self.counter.advance(self.gpu.millijoules()?) as f64 / 1e3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_gpu_is_at_an_address_that_is_none() {
        match NvmlGpu::find("nowhere").map(|gpu| gpu.parts()) {
            Err(Absence::Library { library, .. }) => assert_eq!(library, LIBRARY),
            Err(Absence::Gpu { bus_id, .. }) => assert_eq!(bus_id, "nowhere"),
            other => panic!("{other:?}"),
        }
    }
}
