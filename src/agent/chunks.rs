//! Cutting tensors and documents into pieces for the network, and putting them together again.

use std::collections::HashMap;
use std::hash::Hash;

use bytes::{Bytes, BytesMut};

use super::wire;
use crate::graph::{TensorData, TensorError, TensorType};

/// Bytes in one message: large enough that its cost is the bytes', small enough that others get their turn.
pub const CHUNK: usize = 1 << 20;

/// The largest JSON document that is accepted.
const LARGEST_DOCUMENT: usize = 1 << 30;

/// The largest message that is accepted: a chunk and what surrounds it.
pub const LARGEST_MESSAGE: usize = CHUNK + (64 << 10);

/// Pieces that do not make a whole.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    #[error("{found} bytes for a tensor that has {expected}")]
    TooMany { found: usize, expected: usize },
    #[error("a tensor whose size is not fixed: {0}")]
    NoSize(TensorType),
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("a document of more than {LARGEST_DOCUMENT} bytes")]
    LargeDocument,
}

/// `data` in pieces that share its memory; one empty piece if there is nothing.
pub fn chunks(data: &Bytes) -> impl Iterator<Item = Bytes> + Send + use<> {
    let data = data.clone();
    let count = data.len().div_ceil(CHUNK).max(1);
    (0..count).map(move |i| data.slice(i * CHUNK..data.len().min((i + 1) * CHUNK)))
}

/// A document in pieces, the last one marked.
pub fn document(json: Vec<u8>) -> impl Iterator<Item = wire::Document> + Send {
    let json = Bytes::from(json);
    let mut pieces = chunks(&json).peekable();
    std::iter::from_fn(move || {
        let data = pieces.next()?;
        Some(wire::Document { data, last: pieces.peek().is_none() })
    })
}

/// Collects the pieces of one document.
#[derive(Debug, Default)]
pub struct DocumentBuffer(BytesMut);

impl DocumentBuffer {
    /// Adds a piece; gives the document with its last one.
    pub fn push(&mut self, piece: &wire::Document) -> Result<Option<Bytes>, ChunkError> {
        if self.0.len() + piece.data.len() > LARGEST_DOCUMENT {
            return Err(ChunkError::LargeDocument);
        }
        self.0.extend_from_slice(&piece.data);
        Ok(piece.last.then(|| std::mem::take(&mut self.0).freeze()))
    }
}

/// Collects the pieces of tensors, told apart by `K`. Memory is taken for what came.
#[derive(Debug)]
pub struct Assembler<K>(HashMap<K, BytesMut>);

/// What a piece brought about.
#[derive(Debug, PartialEq)]
pub enum Assembled {
    /// More is to come.
    Part,
    Whole(TensorData),
}

impl<K> Default for Assembler<K> {
    fn default() -> Assembler<K> {
        Assembler(HashMap::new())
    }
}

impl Assembled {
    pub fn whole(self) -> Option<TensorData> {
        match self {
            Assembled::Part => None,
            Assembled::Whole(tensor) => Some(tensor),
        }
    }
}

impl<K: Hash + Eq> Assembler<K> {
    /// Whether pieces of `key` are here, but not all.
    pub fn has_begun(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Adds the next piece of the tensor `key`, which is of type `ty`.
    pub fn push(&mut self, key: K, ty: &TensorType, piece: &Bytes) -> Result<Assembled, ChunkError> {
        let (Some(size), Some(shape)) = (ty.bytes(), ty.shape.fixed()) else {
            return Err(ChunkError::NoSize(ty.clone()));
        };
        let size = size.0 as usize;
        let so_far = self.0.get(&key).map_or(0, BytesMut::len);
        if so_far + piece.len() > size {
            return Err(ChunkError::TooMany { found: so_far + piece.len(), expected: size });
        }
        if so_far + piece.len() < size {
            // Memory grows with what comes, not with what was announced.
            self.0.entry(key).or_default().extend_from_slice(piece);
            return Ok(Assembled::Part);
        }
        let whole = match self.0.remove(&key) {
            Some(mut buffer) => {
                buffer.extend_from_slice(piece);
                buffer.freeze()
            }
            // One that fits into a message is not copied.
            None => piece.clone(),
        };
        Ok(Assembled::Whole(TensorData::new(ty.dtype, shape.to_vec(), whole)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::DType;

    #[test]
    fn tensors_of_any_size_come_together_again() {
        for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7] {
            let data: Bytes = (0..size).map(|i| (i % 251) as u8).collect();
            let ty = TensorType::of(DType::U8, &[size as u64]);
            let mut assembler = Assembler::default();
            let mut whole = None;
            for piece in chunks(&data) {
                assert!(whole.is_none() && piece.len() <= CHUNK);
                if let Assembled::Whole(tensor) = assembler.push(7, &ty, &piece).unwrap() {
                    whole = Some(tensor);
                }
            }
            assert_eq!(whole.unwrap().bytes(), &data);
            assert!(!assembler.has_begun(&7));
        }
    }

    #[test]
    fn too_many_bytes_are_refused() {
        let ty = TensorType::of(DType::F32, &[2]);
        let mut assembler = Assembler::default();
        assert_eq!(assembler.push((), &ty, &Bytes::from_static(&[0; 5])).unwrap(), Assembled::Part);
        assert!(assembler.has_begun(&()));
        assert!(assembler.push((), &ty, &Bytes::from_static(&[0; 4])).is_err());
    }

    #[test]
    fn documents_come_together_again() {
        for size in [0, 5, CHUNK, 2 * CHUNK + 1] {
            let mut buffer = DocumentBuffer::default();
            let pieces: Vec<_> = document(vec![b'x'; size]).collect();
            let (last, before) = pieces.split_last().unwrap();
            assert!(before.iter().all(|piece| buffer.push(piece).unwrap().is_none()));
            assert_eq!(buffer.push(last).unwrap().map(|d| d.len()), Some(size));
        }
    }
}
