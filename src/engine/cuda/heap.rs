//! The card's memory as the engine takes it: regions that are given back when dropped, and how much was taken at most.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::card::{Address, Card, CardError};
use crate::units::Bytes;

/// Counts what is allocated on a card.
pub(super) struct Heap {
    card: Arc<dyn Card>,
    live: AtomicU64,
    peak: AtomicU64,
}

/// Memory on a card, given back when dropped.
pub(super) struct Region {
    heap: Arc<Heap>,
    address: Address,
    bytes: usize,
}

impl Heap {
    pub(super) fn new(card: Arc<dyn Card>) -> Arc<Heap> {
        Arc::new(Heap { card, live: AtomicU64::new(0), peak: AtomicU64::new(0) })
    }

    pub(super) fn card(&self) -> &dyn Card {
        &*self.card
    }

    /// # Errors
    /// If the card has not that much free memory.
    pub(super) fn allocate(self: &Arc<Heap>, bytes: usize) -> Result<Arc<Region>, CardError> {
        let address = self.card.allocate(bytes.max(1))?;
        let live = self.live.fetch_add(bytes as u64, Relaxed) + bytes as u64;
        self.peak.fetch_max(live, Relaxed);
        Ok(Arc::new(Region { heap: Arc::clone(self), address, bytes }))
    }

    /// A region with this content.
    pub(super) fn upload(self: &Arc<Heap>, bytes: &[u8]) -> Result<Arc<Region>, CardError> {
        let region = self.allocate(bytes.len())?;
        self.card.write(region.address, bytes)?;
        Ok(region)
    }

    pub(super) fn live(&self) -> Bytes {
        Bytes(self.live.load(Relaxed))
    }

    /// The most that was taken at one time since the last [`Heap::reset_peak`].
    pub(super) fn peak(&self) -> Bytes {
        Bytes(self.peak.load(Relaxed))
    }

    pub(super) fn reset_peak(&self) {
        self.peak.store(self.live.load(Relaxed), Relaxed);
    }
}

impl Region {
    pub(super) fn address(&self) -> Address {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What lies here, once everything asked for before is done.
    pub(super) fn download(&self) -> Result<Vec<u8>, CardError> {
        let mut bytes = vec![0; self.bytes];
        self.heap.card.read(self.address, &mut bytes)?;
        Ok(bytes)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.heap.card.free(self.address);
        self.heap.live.fetch_sub(self.bytes as u64, Relaxed);
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} bytes at {:#x})", self.bytes, self.address)
    }
}
