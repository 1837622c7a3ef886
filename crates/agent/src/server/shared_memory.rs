//! Memory that several runs share: that of values in no device's memory, on a server where a run begins or ends without a device.

use std::sync::atomic::{AtomicU64, Ordering};

use edgecut_graph::units::Bytes;

/// A limit on what all runs together hold.
#[derive(Debug)]
pub(super) struct SharedMemory {
    limit: Bytes,
    held: AtomicU64,
}

impl SharedMemory {
    pub fn within(limit: Bytes) -> SharedMemory {
        SharedMemory { limit, held: AtomicU64::new(0) }
    }

    /// By how much another tensor of `size` would exceed the limit.
    pub fn shortfall(&self, size: Bytes) -> Bytes {
        self.limit.shortfall(Bytes(self.held.load(Ordering::Relaxed)) + size)
    }

    pub fn allocate(&self, size: Bytes) {
        self.held.fetch_add(size.0, Ordering::Relaxed);
    }

    pub fn free(&self, size: Bytes) {
        self.held.fetch_sub(size.0, Ordering::Relaxed);
    }
}
