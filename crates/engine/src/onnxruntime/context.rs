//! What all executables of one engine share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{library::Library, session::SessionOptions};
use crate::{AllocationMeter, CpuClock, EngineError, TractEngine};

/// The state of one [`OnnxRuntimeEngine`](super::OnnxRuntimeEngine).
pub(super) struct OrtContext {
    pub library: &'static Library,
    pub options: SessionOptions,
    /// Computes what ONNX Runtime cannot.
    pub embedded: TractEngine,
    pub meter: AllocationMeter,
    /// Held while computing: a device runs one computation at a time, and the meter counts one.
    exclusive: Mutex<()>,
}

impl OrtContext {
    /// # Errors
    /// If all allocation meters are in use, or the embedded engine cannot be started.
    pub fn new(library: &'static Library, options: SessionOptions) -> Result<OrtContext, EngineError> {
        let meter = AllocationMeter::new();
        let meter = meter.ok_or_else(|| EngineError::Other("too many engines in one process".to_string()))?;
        let embedded = TractEngine::new(options.threads)?;
        Ok(OrtContext { library, options, embedded, meter, exclusive: Mutex::new(()) })
    }

    /// Waits for exclusive use of the device.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.exclusive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of a computation.
    pub fn clock(&self) -> CpuClock {
        if self.options.threads == 1 { CpuClock::Thread } else { CpuClock::Process }
    }
}
