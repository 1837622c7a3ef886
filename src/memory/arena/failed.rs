//! States of the search that are known to lead nowhere.

use super::hash::mix;

/// A table of the last states that failed, by their hash. A newer one takes the place of an older one.
///
/// Two states with the same 64-bit hash are taken for one. Among the some 10⁷ states that a search looks up this
/// happens with a chance below 10⁻⁹, and then costs at worst a packing that another preference finds.
pub(super) struct Failed {
    slots: Vec<u64>,
    /// Makes the states of different searches different.
    salt: u64,
}

impl Failed {
    pub fn new() -> Failed {
        Failed { slots: vec![0; 1 << 17], salt: 0 }
    }

    /// Starts anew: what failed before is no longer known.
    pub fn forget(&mut self) {
        self.salt = mix(self.salt);
    }

    /// The share of one buffer in a state's hash; the shares are added.
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
