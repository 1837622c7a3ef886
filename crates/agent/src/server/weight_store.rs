//! A cache of the weights that clients send (constants of at least 64 KiB), by client and content hash, least recently used
//! evicted first: a model is profiled, planned and run with one upload. They are in mapped files, so that an engine that packs
//! them does not hold them twice.
//!
//! Clients do not share them: who knows the hash of a content need not know the content.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use prometheus_client::metrics::counter::Counter;

use super::client_id::ClientId;
use crate::protocol::constants::HeldConstants;
use edgecut_graph::{ContentHash, units::Bytes};
use edgecut_values::stored::StoredFile;

/// The weights of all clients, up to a limit; those that were used last.
#[derive(Debug)]
pub(super) struct WeightStore {
    limit: Bytes,
    /// Of those that take memory: where no file can be written, or files are in memory.
    memory_limit: Bytes,
    /// How long what is not used is held.
    time: Duration,
    /// Bytes of weights that came from clients.
    received: Counter,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    contents: HashMap<Key, Content>,
    bytes: Bytes,
    /// Bytes of those that take memory.
    in_memory: Bytes,
}

type Key = (ClientId, ContentHash);

#[derive(Debug)]
struct Content {
    bytes: bytes::Bytes,
    is_in_memory: bool,
    used: Instant,
}

/// The weights of one client.
#[derive(Debug)]
pub(super) struct ClientWeights {
    all: Arc<WeightStore>,
    client: ClientId,
}

impl WeightStore {
    /// For at most `limit`, of which `memory_limit` may take memory, each unused for at most `time`; `received` counts the bytes that
    /// come from clients.
    pub fn new(limit: Bytes, memory_limit: Bytes, time: Duration, received: Counter) -> Arc<WeightStore> {
        Arc::new(WeightStore { limit, memory_limit, time, received, held: Mutex::default() })
    }

    pub fn of(self: &Arc<WeightStore>, client: ClientId) -> ClientWeights {
        ClientWeights { all: self.clone(), client }
    }

    /// What all clients' weights take.
    pub fn bytes(&self) -> Bytes {
        self.lock().bytes
    }

    /// Drops what was not used in time until `now`; returns when to look again.
    pub fn expire(&self, now: Instant) -> Instant {
        let mut held = self.lock();
        let is_over = |content: &Content| now.saturating_duration_since(content.used) >= self.time;
        let over: Vec<Key> =
            held.contents.iter().filter(|(_, content)| is_over(content)).map(|(key, _)| *key).collect();
        over.iter().for_each(|key| held.remove(key));
        held.contents.values().map(|content| content.used).min().unwrap_or(now) + self.time
    }

    /// Evicts the least recently used of those that take memory until these are at most `size`.
    pub fn shrink_to(&self, size: Bytes) {
        self.lock().shrink_memory_to(size);
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn shrink_to(&mut self, size: Bytes) {
        while self.bytes > size && self.evict(|_| true) {}
    }

    fn shrink_memory_to(&mut self, size: Bytes) {
        while self.in_memory > size && self.evict(|content| content.is_in_memory) {}
    }

    /// Evicts the least recently used of some contents; returns whether there was one.
    fn evict(&mut self, of: impl Fn(&Content) -> bool) -> bool {
        let oldest = self.contents.iter().filter(|(_, content)| of(content)).min_by_key(|(_, content)| content.used);
        let Some(oldest) = oldest.map(|(key, _)| *key) else { return false };
        self.remove(&oldest);
        true
    }

    fn insert(&mut self, key: Key, content: Content) {
        let size = Bytes(content.bytes.len() as u64);
        self.bytes += size;
        self.in_memory += if content.is_in_memory { size } else { Bytes::ZERO };
        self.contents.insert(key, content);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(content) = self.contents.remove(key) {
            let size = Bytes(content.bytes.len() as u64);
            self.bytes = self.bytes - size;
            self.in_memory = self.in_memory - if content.is_in_memory { size } else { Bytes::ZERO };
        }
    }
}

impl HeldConstants for ClientWeights {
    fn get(&self, hash: ContentHash) -> Option<bytes::Bytes> {
        let mut held = self.all.lock();
        let content = held.contents.get_mut(&(self.client, hash))?;
        content.used = Instant::now();
        Some(content.bytes.clone())
    }

    /// Evicts the least recently used. Where no file can be written, the content stays on the heap.
    fn keep(&mut self, hash: ContentHash, content: &bytes::Bytes) -> bytes::Bytes {
        let size = Bytes(content.len() as u64);
        self.all.received.inc_by(size.0);
        let (content, is_in_memory) = stored(content).unwrap_or_else(|| (content.clone(), true));
        let (limit, memory_limit) = (self.all.limit, self.all.memory_limit.min(self.all.limit));
        if size > if is_in_memory { memory_limit } else { limit } {
            return content;
        }
        let (mut held, key) = (self.all.lock(), (self.client, hash));
        held.remove(&key);
        held.shrink_to(limit - size);
        if is_in_memory {
            held.shrink_memory_to(memory_limit - size);
        }
        held.insert(key, Content { bytes: content.clone(), is_in_memory, used: Instant::now() });
        content
    }
}

/// `content` in a file, and whether that takes memory; `None` if no file can be written.
fn stored(content: &bytes::Bytes) -> Option<(bytes::Bytes, bool)> {
    let (file, stored) = StoredFile::write([content.as_ref()]).ok()?;
    // The first to read it is the engine, maybe after all others have arrived.
    file.release();
    Some((stored.into_iter().next()?, file.is_in_memory()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_client_are_held_within_a_limit_and_a_time() {
        let store = WeightStore::new(Bytes(10), Bytes(10), Duration::from_secs(60), Counter::default());
        let (mut one, other) = (store.of(ClientId::Certificate([1; 32])), store.of(ClientId::Certificate([2; 32])));
        let contents = [4, 5, 6, 11].map(|size| bytes::Bytes::from(vec![size; usize::from(size)]));
        let [a, b, c, d] = [0, 1, 2, 3].map(|index: usize| ContentHash::of(&contents[index]));
        let held = |client: &ClientWeights| [a, b, c, d].map(|hash| client.get(hash).is_some());
        one.keep(a, &contents[0]);
        one.keep(b, &contents[1]);
        assert_eq!((held(&one), held(&other)), ([true, true, false, false], [false; 4]), "clients share nothing");
        assert_eq!(one.get(a).as_ref(), Some(&contents[0]));
        one.keep(c, &contents[2]);
        assert_eq!(held(&one), [true, false, true, false], "what was used the longest ago makes room");
        one.keep(d, &contents[3]);
        one.keep(c, &contents[2]);
        assert_eq!((held(&one), store.bytes()), ([true, false, true, false], Bytes(10)));
        store.shrink_to(Bytes::ZERO);
        let on_disk = !stored(&contents[2]).unwrap().1;
        assert_eq!(held(&one), [on_disk, false, on_disk, false], "only those that take memory");
        one.keep(a, &contents[0]);
        one.keep(c, &contents[2]);
        store.lock().shrink_to(Bytes(9));
        assert_eq!(held(&one), [false, false, true, false]);
        one.keep(a, &contents[0]);
        let now = Instant::now();
        let next = store.expire(now);
        assert!(next <= now + Duration::from_secs(60) && store.bytes() == Bytes(10));
        assert_eq!(store.received.get(), 4 + 5 + 6 + 11 + 6 + 4 + 6 + 4);
        store.expire(now + Duration::from_secs(60));
        assert_eq!((held(&one), store.bytes()), ([false; 4], Bytes::ZERO));
    }
}
