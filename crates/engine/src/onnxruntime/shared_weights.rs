//! What sessions of the same weights hold once: the contents, and what ONNX Runtime packs of them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use edgecut_graph::{ContentHash, DType, TensorData};
use edgecut_values::stored::StoredFile;
use ort::session::builder::PrepackedWeights;

/// The weights of the sessions so far.
pub(super) struct SharedWeights {
    /// What ONNX Runtime has packed: it finds it by content.
    pub packed: PrepackedWeights,
    stored: Mutex<HashMap<WeightKey, TensorData>>,
    files: Mutex<Vec<StoredFile>>,
}

/// What makes two weights the same. The same bytes may be weights of several types.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct WeightKey {
    hash: ContentHash,
    dtype: DType,
    shape: Vec<u64>,
}

impl WeightKey {
    pub fn of(content: &TensorData) -> WeightKey {
        WeightKey { hash: content.content_hash(), dtype: content.dtype(), shape: content.shape().to_vec() }
    }
}

impl SharedWeights {
    pub fn new() -> SharedWeights {
        SharedWeights { packed: PrepackedWeights::new(), stored: Mutex::default(), files: Mutex::default() }
    }

    /// The same content in an earlier session.
    pub fn find(&self, key: &WeightKey) -> Option<TensorData> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Where the contents of the sessions so far are in memory.
    pub fn addresses(&self) -> HashSet<usize> {
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.values().map(|content| content.bytes().as_ptr().addr()).collect()
    }

    /// Keeps `content` for later sessions.
    pub fn keep(&self, key: WeightKey, content: TensorData) {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).insert(key, content);
    }

    /// The mapped files of all contents.
    pub fn files(&self) -> Vec<StoredFile> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn keep_file(&self, file: StoredFile) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }
}
