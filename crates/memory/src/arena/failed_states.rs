//! Transposition table of search states that are known to fail.

use super::hash::mix;

/// The most recent failed states by hash; a newer state replaces an older one in the same slot.
///
/// States with equal 64-bit hashes are not distinguished. Among the about 10⁷ lookups of a search a collision has a
/// probability below 10⁻⁹, and costs at worst a packing that another preference finds.
pub(super) struct FailedStates {
    slots: Vec<u64>,
    /// Distinguishes the states of different searches.
    salt: u64,
}

impl FailedStates {
    pub fn new() -> FailedStates {
        FailedStates { slots: vec![0; 1 << 17], salt: 0 }
    }

    /// Forgets all states.
    pub fn forget(&mut self) {
        self.salt = mix(self.salt);
    }

    /// The contribution of one buffer to the hash of a state; contributions are summed.
    pub fn state(&self, release: u64, buffer: u32) -> u64 {
        mix(release.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(buffer) ^ self.salt)
    }

    pub fn contains(&self, state: u64) -> bool {
        self.slots[self.slot(state)] == state
    }

    pub fn insert(&mut self, state: u64) {
        let slot = self.slot(state);
        self.slots[slot] = state;
    }

    fn slot(&self, state: u64) -> usize {
        state as usize % self.slots.len()
    }
}
