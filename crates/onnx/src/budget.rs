//! Limits on what a file may make an import produce, proportional to its size: a few bytes can state any number.

use crate::{error::Result, lowering::Lowering};

/// Bytes of computed constants for each unit of the budget.
const CONSTANT_BYTES_PER_UNIT: u64 = 1 << 10;

impl Lowering<'_> {
    /// Checks, before they exist, that constants of `bytes` may be computed, and counts them.
    ///
    /// # Errors
    /// If with those before they are too many for a file of this size.
    pub fn charge_constant(&mut self, bytes: u64) -> Result<()> {
        let total = self.folded.saturating_add(bytes);
        if total > CONSTANT_BYTES_PER_UNIT.saturating_mul(self.budget as u64) {
            return Err(format!("constants of {bytes} bytes are too large for a file of its size"));
        }
        self.folded = total;
        Ok(())
    }

    /// Checks, before they exist, that `count` more operators may be added.
    ///
    /// # Errors
    /// If the graph would have too many for a file of this size.
    pub fn check_operators(&self, count: u64) -> Result<()> {
        let outer = self.outer.as_ref().map_or(0, |graph| graph.operators().len());
        let present = (self.graph.operators().len() + outer + self.inner_operators) as u64;
        match present.saturating_add(count) > self.budget as u64 {
            true => Err(self.too_many_operators()),
            false => Ok(()),
        }
    }

    /// The message about a graph with more operators than the budget.
    pub fn too_many_operators(&self) -> String {
        format!("the graph has more than {} operators, which is too many for a file of its size", self.budget)
    }
}
