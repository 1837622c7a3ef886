//! What all executables of one GPU engine share: device memory, and exclusive use of the device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{device_memory::DeviceMemory, driver::GpuDriver};
use crate::{CpuClock, EngineError, overhead::Overhead};

/// The state of one [`CudaEngine`](super::CudaEngine).
pub(super) struct GpuContext {
    pub memory: Arc<DeviceMemory>,
    pub multiprocessors: usize,
    /// Overhead of an empty measurement.
    pub overhead: Overhead,
    /// Held while computing: a device runs one computation at a time, and memory is counted for one.
    exclusive: Mutex<()>,
}

impl GpuContext {
    /// Measures the overhead of an empty measurement on the device.
    ///
    /// # Errors
    /// If the driver fails.
    pub(super) fn new(driver: Arc<dyn GpuDriver>, multiprocessors: usize) -> Result<GpuContext, EngineError> {
        let events = |()| driver.record_event().and_then(|_| driver.record_event()).and_then(|_| driver.synchronise());
        let overhead = Overhead::of(CpuClock::Thread, || driver.synchronise(), events)?;
        Ok(GpuContext {
            memory: DeviceMemory::new(driver),
            multiprocessors: multiprocessors.max(2),
            overhead,
            exclusive: Mutex::new(()),
        })
    }

    /// Waits for exclusive use of the device.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.exclusive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
