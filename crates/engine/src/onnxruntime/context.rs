//! What all executables of one engine share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{library::Library, provider::Provider, shared_weights::SharedWeights};
use crate::{AllocationMeter, CpuClock, EngineError, TractEngine};

/// How sessions of one engine are created.
#[derive(Debug, Clone)]
pub(super) struct SessionOptions {
    pub threads: usize,
    /// In order of preference.
    pub providers: Vec<Provider>,
}

/// The state of one [`OnnxRuntimeEngine`](super::OnnxRuntimeEngine).
pub(super) struct OrtContext {
    pub library: &'static Library,
    pub options: SessionOptions,
    /// Computes what ONNX Runtime cannot.
    pub embedded: TractEngine,
    pub meter: Arc<AllocationMeter>,
    /// The weights that sessions have in common, if they are held once.
    pub shared: Option<Arc<SharedWeights>>,
    /// Held while computing: a device runs one computation at a time, and the meter counts one.
    exclusive: Arc<Mutex<()>>,
}

impl OrtContext {
    /// # Errors
    /// If all allocation meters are in use, or the embedded engine cannot be started.
    pub fn new(library: &'static Library, options: SessionOptions) -> Result<OrtContext, EngineError> {
        let meter = AllocationMeter::new();
        let meter = meter.ok_or_else(|| EngineError::Other("too many engines in one process".to_string()))?;
        let embedded = TractEngine::new(options.threads)?;
        Ok(OrtContext { library, options, embedded, meter: Arc::new(meter), shared: None, exclusive: Arc::default() })
    }

    /// The same device, for sessions that have weights in common.
    pub fn sharing_weights(&self) -> OrtContext {
        OrtContext {
            library: self.library,
            options: self.options.clone(),
            embedded: self.embedded.clone(),
            meter: Arc::clone(&self.meter),
            shared: Some(Arc::new(SharedWeights::new())),
            exclusive: Arc::clone(&self.exclusive),
        }
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
