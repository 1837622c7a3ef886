//! Memory of one partition over time: parameters, live tensors, and the peak of both with the engine's own.

use edgecut_graph::units::Bytes;

/// The memory that one partition takes on its device.
#[derive(Debug, Clone, Default)]
pub(super) struct MemoryTracker {
    /// `None` where nothing limits it.
    pub limit: Option<Bytes>,
    pub parameters: Bytes,
    /// Peak while the stages were loaded.
    pub loading: Bytes,
    pub live: Bytes,
    pub peak: Bytes,
    /// Maximum of `live` since the running stage began; `None` while no stage runs.
    stage_live: Option<Bytes>,
}

impl MemoryTracker {
    pub fn set_parameters(&mut self, parameters: Bytes, loading: Bytes) {
        (self.parameters, self.loading) = (parameters, loading);
        self.peak = self.peak.max(parameters + self.live);
    }

    /// By how much another tensor of `size` would exceed the limit.
    pub fn shortfall(&self, size: Bytes) -> Bytes {
        self.limit.map_or(Bytes::ZERO, |limit| limit.shortfall(self.parameters + self.live + size))
    }

    pub fn allocate(&mut self, size: Bytes) {
        self.live += size;
        self.stage_live = self.stage_live.map(|most| most.max(self.live));
        self.peak = self.peak.max(self.parameters + self.live);
    }

    pub fn free(&mut self, size: Bytes) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
