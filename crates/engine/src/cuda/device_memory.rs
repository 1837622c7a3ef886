//! Device memory: buffers that are freed when dropped, and a count of live bytes with their peak.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::driver::{Address, GpuDriver, GpuError};
use edgecut_graph::units::Bytes;

/// Allocates and counts the memory of one GPU.
pub(super) struct DeviceMemory {
    driver: Arc<dyn GpuDriver>,
    live: AtomicU64,
    peak: AtomicU64,
}

/// A buffer in device memory, freed when dropped.
pub(super) struct DeviceBuffer {
    memory: Arc<DeviceMemory>,
    address: Address,
    bytes: usize,
}

impl DeviceMemory {
    pub(super) fn new(driver: Arc<dyn GpuDriver>) -> Arc<DeviceMemory> {
        Arc::new(DeviceMemory { driver, live: AtomicU64::new(0), peak: AtomicU64::new(0) })
    }

    pub(super) fn driver(&self) -> &dyn GpuDriver {
        &*self.driver
    }

    /// # Errors
    /// If the GPU has not enough free memory.
    pub(super) fn allocate(self: &Arc<DeviceMemory>, bytes: usize) -> Result<Arc<DeviceBuffer>, GpuError> {
        let address = self.driver.allocate(bytes.max(1))?;
        let live = self.live.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        self.peak.fetch_max(live, Relaxed);
        Ok(Arc::new(DeviceBuffer { memory: Arc::clone(self), address, bytes }))
    }

    /// A buffer with this content.
    pub(super) fn upload(self: &Arc<DeviceMemory>, bytes: &[u8]) -> Result<Arc<DeviceBuffer>, GpuError> {
        let buffer = self.allocate(bytes.len())?;
        self.driver.write(buffer.address, bytes)?;
        Ok(buffer)
    }

    pub(super) fn live(&self) -> Bytes {
        Bytes(self.live.load(Relaxed))
    }

    /// Peak of the live bytes since the last [`DeviceMemory::reset_peak`].
    pub(super) fn peak(&self) -> Bytes {
        Bytes(self.peak.load(Relaxed))
    }

    pub(super) fn reset_peak(&self) {
        self.peak.store(self.live.load(Relaxed), Relaxed);
    }
}

impl DeviceBuffer {
    pub(super) fn address(&self) -> Address {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The content, after all previous requests.
    pub(super) fn download(&self) -> Result<Vec<u8>, GpuError> {
        let mut bytes = vec![0; self.bytes];
        self.memory.driver.read(self.address, &mut bytes)?;
        Ok(bytes)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        self.memory.driver.free(self.address);
        self.memory.live.fetch_sub(self.bytes as u64, Relaxed);
    }
}

impl std::fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBuffer({} bytes at {:#x})", self.bytes, self.address)
    }
}
