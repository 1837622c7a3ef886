//! The bytes that clients have sent and the agent still has: setups, tasks and tensors that no engine has yet.
//!
//! They are counted as they come, before anything is known of them, against the memory that the agent may use.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::error::HostError;
use edgecut_graph::units::Bytes;

/// The count of all clients together.
#[derive(Debug)]
pub(super) struct ReceivedBytes {
    limit: Bytes,
    held: AtomicU64,
}

/// What one client has sent; it is no longer counted once this is dropped.
#[derive(Debug)]
pub(super) struct Received {
    all: Arc<ReceivedBytes>,
    own: AtomicU64,
}

impl ReceivedBytes {
    pub fn within(limit: Bytes) -> Arc<ReceivedBytes> {
        Arc::new(ReceivedBytes { limit, held: AtomicU64::new(0) })
    }

    /// What all clients have sent that is still here.
    pub fn held(&self) -> Bytes {
        Bytes(self.held.load(Ordering::Relaxed))
    }

    /// The count of another client.
    pub fn begin(self: &Arc<ReceivedBytes>) -> Received {
        Received { all: self.clone(), own: AtomicU64::new(0) }
    }
}

/// What a list in a document takes at most once it is read, for each of its bytes: an entry of few bytes is a struct, and the
/// list is copied while it grows.
const DOCUMENT_EXPANSION: usize = 16;

/// What documents may take in addition to the agent's memory.
pub(super) const DOCUMENT_ROOM: Bytes = Bytes(64 << 20);

impl Received {
    /// Counts a part of a document with what it takes once it is read.
    ///
    /// # Errors
    /// As [`Received::add`].
    pub fn add_document(&self, bytes: usize) -> Result<(), HostError> {
        self.add(bytes.saturating_mul(DOCUMENT_EXPANSION))
    }

    /// Counts a message of `bytes`.
    ///
    /// # Errors
    /// If all clients together have sent more than the agent may hold; then it is not counted.
    pub fn add(&self, bytes: usize) -> Result<(), HostError> {
        let bytes = bytes as u64;
        let held = Bytes(self.all.held.fetch_add(bytes, Ordering::Relaxed) + bytes);
        if held > self.all.limit {
            self.all.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(HostError::Received { held, limit: self.all.limit });
        }
        self.own.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Counts nothing any longer of what was sent so far: the agent has passed it on.
    pub fn release(&self) {
        self.all.held.fetch_sub(self.own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_one_limit() {
        let all = ReceivedBytes::within(Bytes(10));
        let (one, two) = (all.begin(), all.begin());
        assert!(one.add(6).is_ok() && two.add(4).is_ok());
        assert!(one.add(1).unwrap_err().to_string().contains("11 B"));
        one.release();
        assert!(two.add(6).is_ok());
        drop(two);
        assert!(one.add(11).is_err() && one.add(10).is_ok() && one.add(1).is_err());
    }
}
