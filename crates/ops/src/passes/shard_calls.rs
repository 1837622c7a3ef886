//! Cache of shards: a search splits the same operators in the same ways thousands of times, and the shard of a composite
//! operator is a graph of its own.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use edgecut_graph::OperatorId;

use crate::{
    passes::shard::{ShardCall, SplitError},
    split::PackedAxis,
};

/// Memoized calls of shards of one graph's operators. Threads may share it.
#[derive(Default)]
pub struct ShardCalls(Mutex<HashMap<ShardKey, ShardCall>>);

/// What a call depends on: the operator, the index of the axis, the range along it, and its packing.
type ShardKey = (OperatorId, usize, Range<u64>, Option<PackedAxis>);

/// Capacity; a full cache is cleared. A plan of a decoder of 22 layers on eight devices has 2 200 calls; those of its attention,
/// the largest, have 20 KB each.
const CAPACITY: usize = 16_384;

impl ShardCalls {
    /// The call of the shard `key`, which `make` makes if it is not known.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn get(
        &self,
        key: ShardKey,
        make: impl FnOnce() -> Result<ShardCall, SplitError>,
    ) -> Result<ShardCall, SplitError> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = known().get(&key) {
            return Ok(call.clone());
        }
        let call = make()?;
        let mut known = known();
        if known.len() >= CAPACITY {
            known.clear();
        }
        known.insert(key, call.clone());
        Ok(call)
    }
}

impl fmt::Debug for ShardCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardCalls").finish_non_exhaustive()
    }
}
