//! What the engine asks of a graphics card, and nothing else: memory, copies, kernels, matrix products, waiting, time.

use super::{arguments::Product, source::Kernel};
use crate::units::{Bytes, Micros};

/// A place in the card's memory.
pub(super) type Address = u64;

/// A failed request; what it was about is in the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct CardError(pub String);

/// A point in the card's time.
pub(super) type Mark = u64;

/// A card that does one thing after the other, in the order in which it is asked. Requests return at once; [`Card::read`]
/// and [`Card::synchronise`] wait for all that was asked before.
pub(super) trait Card: Send + Sync {
    /// # Errors
    /// If the card has not that much free memory.
    fn allocate(&self, bytes: usize) -> Result<Address, CardError>;

    /// Gives back what [`Card::allocate`] gave, once everything asked for before is done with it.
    fn free(&self, address: Address);

    /// Copies `bytes` to the card; they may be changed as soon as this returns.
    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), CardError>;

    /// Fills `bytes` from the card.
    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), CardError>;

    /// Makes a kernel ready, which takes seconds for the first of a family.
    fn prepare(&self, kernel: &Kernel) -> Result<(), CardError>;

    /// Calls a prepared kernel.
    fn launch(&self, launch: &Launch) -> Result<(), CardError>;

    /// Computes a product of single precision by the card's library. `false` if it has none, or none for such strides.
    fn multiply(&self, product: &Product) -> Result<bool, CardError>;

    /// Main memory that the card reaches directly, zeroed or not.
    fn lock_memory(&self, bytes: usize) -> Result<*mut u8, CardError>;

    /// Gives back what [`Card::lock_memory`] gave.
    fn unlock_memory(&self, first: *mut u8);

    fn synchronise(&self) -> Result<(), CardError>;

    /// Marks the point between what was asked before and what is asked from now on. Few marks are kept: those of the
    /// last measurement.
    fn mark(&self) -> Result<Mark, CardError>;

    /// The time that the card took from one mark to the other, both of which it has passed.
    fn between(&self, from: Mark, to: Mark) -> Result<Micros, CardError>;

    /// What of the card's memory nobody has taken, and all of it.
    fn memory(&self) -> Result<(Bytes, Bytes), CardError>;
}

/// One call of a kernel.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub kernel: Kernel,
    pub arguments: Vec<u64>,
    pub threads: Threads,
}

/// How many threads a kernel needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Threads {
    /// So many, each for itself.
    Each(u32),
    /// So many blocks, whose threads work together.
    Teams(u32),
}
