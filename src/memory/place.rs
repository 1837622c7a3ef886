//! Where the tensors of a graph lie: lifetimes and offsets for an order, and the order for which that is least.

use super::{
    Lifetimes, Options, OrderError, Packing, Sharing, bound, check, lifetimes,
    lower::{Lowered, lower},
    order::least_peak,
    pack,
};
use crate::{
    graph::{Graph, OperatorId},
    units::{Bytes, Micros},
};

/// Sets that the search for an order looks at on each level.
const WIDTH: usize = 400;

/// A graph in one order, with its arena.
#[derive(Debug, Clone)]
pub struct Placed {
    pub order: Vec<OperatorId>,
    pub lifetimes: Lifetimes,
    pub packing: Packing,
}

/// A graph in program order and in the best order found.
#[derive(Debug)]
pub struct Placements {
    pub program_order: Placed,
    pub best: Placed,
    /// No order has a lower peak, under the same rules for views and work in place.
    pub bound: Bytes,
}

/// Why tensors cannot be placed.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    Arena(#[from] super::ArenaError),
    #[error("a packing does not pass its check: {0}")]
    Check(#[from] check::Flaw),
}

/// Lifetimes and offsets when the operators run in `order`.
///
/// # Errors
/// If the order is none, a size is not known, or the packing does not pass its check.
pub fn place(
    graph: &Graph,
    order: Vec<OperatorId>,
    sharing: &Sharing<'_>,
    options: &Options,
) -> Result<Placed, PlaceError> {
    let lifetimes = lifetimes(graph, &order, sharing)?;
    let packing = pack(&lifetimes.buffers, options)?;
    check::packing(&lifetimes.buffers, &packing)?;
    Ok(Placed { order, lifetimes, packing })
}

/// Places a graph in program order and in an order of least peak, and keeps the one whose arena is smaller: a lower
/// peak that packs worse is not better.
///
/// # Errors
/// As [`place`].
pub fn best(graph: &Graph, sharing: &Sharing<'_>, options: &Options) -> Result<Placements, PlaceError> {
    let program_order: Vec<OperatorId> = graph.operators().map(|(id, _)| id).collect();
    let before = place(graph, program_order, sharing, options)?;
    let lowered: Lowered = lower(graph, sharing, &|_| Micros(1.0))?;
    let ordered = least_peak(&lowered.program, &lowered.reuse, WIDTH);
    let after = place(graph, lowered.order(graph, sharing, &ordered.order), sharing, options)?;
    let bound = Bytes(ordered.bound).min(after.lifetimes.peak()).min(before.lifetimes.peak());
    let size = |placed: &Placed| (placed.packing.height, placed.lifetimes.peak());
    let best = if size(&after) < size(&before) { after } else { before.clone() };
    Ok(Placements { program_order: before, best, bound })
}

impl Placed {
    /// Memory in use over the steps of the order.
    pub fn loads(&self) -> Vec<bound::Load> {
        bound::loads(&self.lifetimes.buffers)
    }
}
