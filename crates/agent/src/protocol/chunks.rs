//! Tensors and documents in messages of limited size: splitting and reassembly.

use std::collections::HashMap;
use std::hash::Hash;

use bytes::{Bytes, BytesMut};

use super::frame::Frame;
use edgecut_graph::{TensorData, TensorError, TensorType, units::Bytes as ByteCount};
use edgecut_plan::TransferFormat;

/// Bytes in one message: large enough to amortise its overhead, small enough to let other streams progress.
pub const CHUNK_SIZE: usize = 1 << 20;

/// The largest message that is accepted: a chunk with its other fields.
pub const MAX_MESSAGE_SIZE: usize = CHUNK_SIZE + (64 << 10);

/// Chunks that cannot be reassembled.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    #[error("{found} for a tensor of {expected}")]
    TooLarge { found: ByteCount, expected: ByteCount },
    #[error("a tensor of unknown size: {0}")]
    UnknownSize(TensorType),
    #[error("{ty} sent as {format}, which takes a float32 tensor")]
    Encoding { format: TransferFormat, ty: TensorType },
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("a document exceeds {0}")]
    DocumentTooLarge(ByteCount),
}

/// `data` in chunks that share its memory; one empty chunk if it is empty.
pub fn chunks(data: &Bytes) -> impl Iterator<Item = Bytes> + Send + use<> {
    let data = data.clone();
    let count = data.len().div_ceil(CHUNK_SIZE).max(1);
    (0..count).map(move |i| data.slice(i * CHUNK_SIZE..data.len().min((i + 1) * CHUNK_SIZE)))
}

/// The messages of a JSON document, each with the header for whether it is the last one.
pub fn document<H>(json: Vec<u8>, header: impl Fn(bool) -> H + Send) -> impl Iterator<Item = Frame<H>> + Send {
    let json = Bytes::from(json);
    let mut pieces = chunks(&json).peekable();
    std::iter::from_fn(move || {
        let payload = pieces.next()?;
        Some(Frame { header: header(pieces.peek().is_none()), payload })
    })
}

/// The messages of a tensor, all with the same header.
pub fn tensor<H: Clone + Send>(header: H, data: &TensorData) -> impl Iterator<Item = Frame<H>> + Send + use<H> {
    chunks(data.bytes()).map(move |payload| Frame { header: header.clone(), payload })
}

/// Reassembles one document.
#[derive(Debug)]
pub struct DocumentBuffer {
    content: BytesMut,
    limit: ByteCount,
}

impl DocumentBuffer {
    /// For a document of at most `limit`.
    pub fn new(limit: ByteCount) -> DocumentBuffer {
        DocumentBuffer { content: BytesMut::new(), limit }
    }

    /// Bytes of the document so far.
    pub fn buffered(&self) -> usize {
        self.content.len()
    }

    /// Adds a chunk; returns the document with its last one.
    ///
    /// # Errors
    /// If the document is too large.
    pub fn push(&mut self, piece: &Bytes, last: bool) -> Result<Option<Bytes>, ChunkError> {
        if (self.content.len() + piece.len()) as u64 > self.limit.0 {
            return Err(ChunkError::DocumentTooLarge(self.limit));
        }
        self.content.extend_from_slice(piece);
        Ok(last.then(|| std::mem::take(&mut self.content).freeze()))
    }
}

/// Reassembles tensors, identified by `K`. Memory grows with the bytes received.
#[derive(Debug)]
pub struct Assembler<K>(HashMap<K, BytesMut>);

/// The state of a tensor after a chunk.
#[derive(Debug, PartialEq)]
pub enum Assembled {
    Incomplete,
    Complete(TensorData),
}

impl<K> Default for Assembler<K> {
    fn default() -> Assembler<K> {
        Assembler(HashMap::new())
    }
}

impl Assembled {
    pub fn complete(self) -> Option<TensorData> {
        match self {
            Assembled::Incomplete => None,
            Assembled::Complete(tensor) => Some(tensor),
        }
    }
}

impl<K: Hash + Eq> Assembler<K> {
    /// Whether some but not all chunks of `key` were added.
    pub fn has_begun(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Adds the next chunk of the tensor `key` of type `ty`.
    ///
    /// # Errors
    /// If the tensor has no fixed size, or too many bytes.
    pub fn push(&mut self, key: K, ty: &TensorType, piece: &Bytes) -> Result<Assembled, ChunkError> {
        let (Some(size), Some(shape)) = (ty.bytes(), ty.shape.fixed()) else {
            return Err(ChunkError::UnknownSize(ty.clone()));
        };
        let total = size.0 as usize;
        let so_far = self.0.get(&key).map_or(0, BytesMut::len);
        if so_far + piece.len() > total {
            let found = ByteCount((so_far + piece.len()) as u64);
            return Err(ChunkError::TooLarge { found, expected: size });
        }
        if so_far + piece.len() < total {
            // The announced size is not trusted for an allocation.
            self.0.entry(key).or_default().extend_from_slice(piece);
            return Ok(Assembled::Incomplete);
        }
        let whole = match self.0.remove(&key) {
            Some(mut buffer) => {
                buffer.extend_from_slice(piece);
                buffer.freeze()
            }
            // A tensor in one chunk is not copied.
            None => piece.clone(),
        };
        Ok(Assembled::Complete(TensorData::new(ty.dtype, shape.to_vec(), whole)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::DType;

    #[test]
    fn tensors_of_any_size_are_reassembled() {
        for size in [0, 1, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE, 3 * CHUNK_SIZE + 7] {
            let data: Bytes = (0..size).map(|i| (i % 251) as u8).collect();
            let ty = TensorType::of(DType::U8, &[size as u64]);
            let mut assembler = Assembler::default();
            let mut whole = None;
            for piece in chunks(&data) {
                assert!(whole.is_none() && piece.len() <= CHUNK_SIZE);
                if let Assembled::Complete(tensor) = assembler.push(7, &ty, &piece).unwrap() {
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
        assert_eq!(assembler.push((), &ty, &Bytes::from_static(&[0; 5])).unwrap(), Assembled::Incomplete);
        assert!(assembler.has_begun(&()));
        assert!(assembler.push((), &ty, &Bytes::from_static(&[0; 4])).is_err());
    }

    #[test]
    fn interleaved_tensors_do_not_mix() {
        let ty = TensorType::of(DType::U8, &[4]);
        let mut assembler = Assembler::default();
        let piece = |byte: u8| Bytes::from(vec![byte; 2]);
        for key in [1, 2] {
            assert_eq!(assembler.push(key, &ty, &piece(key)).unwrap(), Assembled::Incomplete);
        }
        for key in [2, 1] {
            let tensor = assembler.push(key, &ty, &piece(key)).unwrap().complete().unwrap();
            assert_eq!(tensor.bytes()[..], [key; 4]);
        }
    }

    #[test]
    fn documents_of_any_size_are_reassembled() {
        for size in [0, 5, CHUNK_SIZE, 2 * CHUNK_SIZE + 1] {
            let mut buffer = DocumentBuffer::new(ByteCount(size as u64));
            let mut push = |piece: &Frame<bool>| buffer.push(&piece.payload, piece.header);
            let pieces: Vec<_> = document(vec![b'x'; size], |last| last).collect();
            let (last, before) = pieces.split_last().unwrap();
            assert!(before.iter().all(|piece| push(piece).unwrap().is_none()));
            assert_eq!(push(last).unwrap().map(|d| d.len()), Some(size));
            let larger = document(vec![b'x'; size + 1], |last| last).map(|piece| push(&piece)).find_map(Result::err);
            assert!(matches!(larger, Some(ChunkError::DocumentTooLarge(_))));
        }
    }
}
