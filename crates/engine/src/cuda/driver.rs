//! The interface to a GPU: memory, copies, kernel launches, matrix products, synchronisation and events.

use super::{arguments::Product, source::Kernel};
use crate::EngineError;
use edgecut_graph::units::{Bytes, Micros};

/// An address in device memory.
pub(super) type Address = u64;

/// A failed request, with its context.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum GpuError {
    #[error("{0}")]
    Failed(String),
    /// The context is not usable any longer: every later request fails too, until the process ends.
    #[error("{0}")]
    Lost(String),
}

impl From<GpuError> for EngineError {
    fn from(error: GpuError) -> EngineError {
        match error {
            GpuError::Failed(what) => EngineError::Other(format!("on the GPU: {what}")),
            GpuError::Lost(what) => EngineError::DeviceLost(format!("on the GPU: {what}")),
        }
    }
}

/// A point on the device's timeline.
pub(super) type Event = u64;

/// A GPU with one stream: requests are executed in order. Requests return immediately; [`GpuDriver::read`] and
/// [`GpuDriver::synchronise`] wait for all previous ones.
pub(super) trait GpuDriver: Send + Sync {
    /// # Errors
    /// If the device has not enough free memory.
    fn allocate(&self, bytes: usize) -> Result<Address, GpuError>;

    /// Frees memory returned by [`GpuDriver::allocate`] after all previous requests have finished with it.
    fn free(&self, address: Address);

    /// Copies `bytes` to the device. The caller may change them as soon as this returns.
    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError>;

    /// Copies from the device to `bytes`.
    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// Compiles a kernel; the first one of a family takes seconds.
    fn prepare(&self, kernel: &Kernel) -> Result<(), GpuError>;

    /// Launches a prepared kernel.
    fn launch(&self, launch: &Launch) -> Result<(), GpuError>;

    /// Multiplies matrices in single precision with the vendor's library. Returns `false` if there is none, or it does
    /// not support the strides.
    fn multiply(&self, product: &Product) -> Result<bool, GpuError>;

    /// Allocates page-locked main memory, which may be uninitialised.
    fn lock_memory(&self, bytes: usize) -> Result<*mut u8, GpuError>;

    /// Frees memory returned by [`GpuDriver::lock_memory`].
    fn unlock_memory(&self, first: *mut u8);

    fn synchronise(&self) -> Result<(), GpuError>;

    /// Records an event between the previous and the following requests. Only the most recent events are kept.
    fn record_event(&self) -> Result<Event, GpuError>;

    /// Time between two events that have completed, by the device's clock.
    fn elapsed(&self, from: Event, to: Event) -> Result<Micros, GpuError>;

    /// Free and total device memory.
    fn memory(&self) -> Result<(Bytes, Bytes), GpuError>;
}

/// One kernel launch.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub kernel: Kernel,
    pub arguments: Vec<u64>,
    pub grid: Grid,
}

/// The size of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grid {
    /// This many independent threads.
    Threads(u32),
    /// This many blocks, whose threads cooperate.
    Blocks(u32),
}
