//! What it takes to move a tensor between main memory and a card: timed copies, to which a link is fitted.

use std::{sync::Arc, time::Instant};

use super::{
    card::{Card, CardError},
    heap::Heap,
};
use crate::{
    statistics::median,
    units::{Bytes, Micros},
};

/// Which main memory a tensor lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Any: the driver copies it once more. Tensors of a run are such.
    Pageable,
    /// Locked for the card, which fetches from it directly.
    Pinned,
}

/// Timed copies in both directions: the median of some for each size.
#[derive(Debug, Clone, PartialEq)]
pub struct HostLink {
    pub memory: Memory,
    pub to_card: Vec<(Bytes, Micros)>,
    pub from_card: Vec<(Bytes, Micros)>,
}

/// Four times as much each, from the first to the last.
const SMALLEST: usize = 1 << 10;
const LARGEST: usize = 64 << 20;
/// Copies of each size.
const COPIES: usize = 7;

impl HostLink {
    /// Times copies from and to `memory`.
    pub(super) fn measure(heap: &Arc<Heap>, memory: Memory) -> Result<HostLink, CardError> {
        let card = heap.card();
        let region = heap.allocate(LARGEST)?;
        let mut buffer = Buffer::new(card, memory, LARGEST)?;
        let (mut to_card, mut from_card) = (Vec::new(), Vec::new());
        let mut size = SMALLEST;
        while size <= LARGEST {
            let to = timed(|| {
                card.write(region.address(), &buffer.bytes()[..size])?;
                card.synchronise()
            })?;
            let from = timed(|| card.read(region.address(), &mut buffer.bytes_mut()[..size]))?;
            to_card.push((Bytes(size as u64), to));
            from_card.push((Bytes(size as u64), from));
            size *= 4;
        }
        Ok(HostLink { memory, to_card, from_card })
    }
}

/// The median of some copies, after one that does not count.
fn timed(mut copy: impl FnMut() -> Result<(), CardError>) -> Result<Micros, CardError> {
    copy()?;
    let mut times = Vec::with_capacity(COPIES);
    for _ in 0..COPIES {
        let start = Instant::now();
        copy()?;
        times.push(Micros::from(start.elapsed()));
    }
    Ok(median(&times))
}

/// Main memory of one kind.
enum Buffer<'c> {
    Pageable(Vec<u8>),
    Pinned { card: &'c dyn Card, first: *mut u8, bytes: usize },
}

impl Buffer<'_> {
    fn new(card: &dyn Card, memory: Memory, bytes: usize) -> Result<Buffer<'_>, CardError> {
        let mut buffer = match memory {
            Memory::Pageable => Buffer::Pageable(vec![0; bytes]),
            Memory::Pinned => Buffer::Pinned { card, first: card.lock_memory(bytes)?, bytes },
        };
        // Not zeroes: those would all be one physical page.
        buffer.bytes_mut().fill(1);
        Ok(buffer)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Pageable(bytes) => bytes,
            // SAFETY: so many bytes are ours until dropped, and were written when the buffer was made.
            Buffer::Pinned { first, bytes, .. } => unsafe { std::slice::from_raw_parts(*first, *bytes) },
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Pageable(bytes) => bytes,
            // SAFETY: as in `bytes`, and nobody else has them.
            Buffer::Pinned { first, bytes, .. } => unsafe { std::slice::from_raw_parts_mut(*first, *bytes) },
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if let Buffer::Pinned { card, first, .. } = self {
            card.unlock_memory(*first);
        }
    }
}
