//! Memory of one partition over time: parameters, live tensors, and the peak of both with the engine's own.

use std::sync::Arc;

use edgecut_graph::units::Bytes;

use crate::server::shared_memory::SharedMemory;

/// What limits memory.
#[derive(Debug)]
pub(in crate::server) enum MemoryLimit {
    Own(Bytes),
    /// What other runs hold counts too.
    Shared(Arc<SharedMemory>),
}

/// The memory that one partition takes on its device.
#[derive(Debug, Default)]
pub(super) struct MemoryTracker {
    /// `None` where nothing limits it.
    limit: Option<MemoryLimit>,
    pub parameters: Bytes,
    /// Peak while the stages were loaded.
    pub loading: Bytes,
    pub live: Bytes,
    pub peak: Bytes,
    /// Maximum of `live` since the running stage began; `None` while no stage runs.
    stage_live: Option<Bytes>,
}

impl MemoryTracker {
    /// Before anything is held.
    pub fn set_limit(&mut self, limit: MemoryLimit) {
        self.limit = Some(limit);
    }

    pub fn set_parameters(&mut self, parameters: Bytes, loading: Bytes) {
        (self.parameters, self.loading) = (parameters, loading);
        self.peak = self.peak.max(parameters + self.live);
    }

    /// By how much another tensor of `size` would exceed the limit.
    pub fn shortfall(&self, size: Bytes) -> Bytes {
        match &self.limit {
            None => Bytes::ZERO,
            Some(MemoryLimit::Own(limit)) => limit.shortfall(self.parameters + self.live + size),
            Some(MemoryLimit::Shared(shared)) => shared.shortfall(size),
        }
    }

    pub fn allocate(&mut self, size: Bytes) {
        if let Some(MemoryLimit::Shared(shared)) = &self.limit {
            shared.allocate(size);
        }
        self.live += size;
        self.stage_live = self.stage_live.map(|most| most.max(self.live));
        self.peak = self.peak.max(self.parameters + self.live);
    }

    pub fn free(&mut self, size: Bytes) {
        if let Some(MemoryLimit::Shared(shared)) = &self.limit {
            shared.free(size.min(self.live));
        }
        self.live = self.live - size;
    }

    pub fn begin_stage(&mut self) {
        self.stage_live = Some(self.live);
    }

    /// `engine` is the engine's own peak, at an unknown instant of the stage: it is added to the maximum of the live
    /// tensors during the stage.
    pub fn finish_stage(&mut self, engine: Bytes) {
        let live = self.stage_live.take().unwrap_or(self.live);
        self.peak = self.peak.max(self.parameters + live + engine);
    }
}

impl Drop for MemoryTracker {
    /// A run may end with values that were not used.
    fn drop(&mut self) {
        self.free(self.live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_share_memory_leave_each_other_what_they_free() {
        let shared = Arc::new(SharedMemory::within(Bytes(10)));
        let tracker = || {
            let mut tracker = MemoryTracker::default();
            tracker.set_limit(MemoryLimit::Shared(shared.clone()));
            tracker
        };
        let (mut one, mut two) = (tracker(), tracker());
        one.allocate(Bytes(6));
        assert_eq!((two.shortfall(Bytes(4)), two.shortfall(Bytes(5))), (Bytes(0), Bytes(1)));
        two.allocate(Bytes(4));
        one.free(Bytes(2));
        assert_eq!(two.shortfall(Bytes(3)), Bytes(1));
        drop(one);
        assert_eq!(two.shortfall(Bytes(6)), Bytes(0));
    }

    #[test]
    fn peak_counts_tensors_that_arrive_during_a_stage() {
        let mut memory = MemoryTracker::default();
        memory.set_parameters(Bytes(100), Bytes(150));
        memory.allocate(Bytes(10));
        memory.begin_stage();
        memory.allocate(Bytes(5));
        memory.free(Bytes(15));
        memory.finish_stage(Bytes(7));
        assert_eq!((memory.live, memory.peak, memory.loading), (Bytes(0), Bytes(122), Bytes(150)));
        memory.begin_stage();
        memory.finish_stage(Bytes(7));
        assert_eq!(memory.peak, Bytes(122));
    }
}
