//! A graph in one operator order with its arena.

use std::collections::HashSet;

use crate::{Lifetimes, Packing, bound};
use edgecut_graph::OperatorId;

/// An order, the lifetimes of the tensors in it, and their offsets.
#[derive(Debug, Clone)]
pub struct Placement {
    pub order: Vec<OperatorId>,
    /// The concatenations whose operands are produced in place.
    pub elided: HashSet<OperatorId>,
    pub lifetimes: Lifetimes,
    pub packing: Packing,
}

impl Placement {
    /// Bytes in use over the steps of the order.
    pub fn loads(&self) -> Vec<bound::Load> {
        bound::loads(&self.lifetimes.buffers)
    }
}
