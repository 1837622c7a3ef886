//! The spatial axes of a pooled tensor, and how kernels make them adjacent.

use crate::{
    def::{Call, TypeError, Typed},
    layout::Layout,
    split::SplitAxis,
};
use edgecut_graph::{Dim, TensorType};

/// The reduction of a window, as a const parameter: maximum or mean.
pub(crate) const MAX: bool = true;

pub(crate) const AVERAGE: bool = false;

/// Default layouts with 1, 2 and 3 spatial axes.
const LAYOUTS: [&str; 4] = ["NC", "NCW", "NCHW", "NCDHW"];

/// The layout of the pooled tensor and the positions of its spatial axes.
pub(crate) struct Pooled {
    layout: Layout,
    pub at: Vec<usize>,
}

impl Pooled {
    /// The layout of the operand `data`, with any axes in addition to the spatial ones.
    pub fn read<const RANK: usize>(call: &Call<'_>, data: &TensorType) -> Result<Pooled, TypeError> {
        let layout = Layout::parse(call.text("layout", LAYOUTS[RANK])?).map_err(|e| call.error(e))?;
        if layout.rank() != data.shape.rank() {
            return Err(
                call.error(format!("{data} has another rank than its layout, which has {} axes", layout.rank()))
            );
        }
        let letters = &LAYOUTS[RANK][2..];
        let at = letters.chars().map(|l| layout.position(l).filter(|_| !layout.splits(l)));
        let at = at.collect::<Option<_>>();
        let at = at.ok_or_else(|| call.error(format!("the layout must have the unblocked axes {letters}")))?;
        Ok(Pooled { layout, at })
    }

    /// The type of `data` with its spatial sizes replaced.
    pub fn with_sizes(&self, data: &TensorType, sizes: &[Dim]) -> TensorType {
        let mut out = data.clone();
        self.at.iter().zip(sizes).for_each(|(at, size)| out.shape[*at] = *size);
        out
    }

    pub fn sizes(&self, data: &TensorType) -> Vec<Dim> {
        self.at.iter().map(|at| data.shape[*at]).collect()
    }

    /// Splits along the axes that are not pooled, of the result and the operands numbered `operands`.
    pub fn others(&self, call: &Typed<'_>, operands: &[usize]) -> Vec<SplitAxis> {
        let free = (0..self.layout.rank()).filter(|axis| !self.at.contains(axis));
        let along = |axis| SplitAxis::along(call, axis);
        free.map(|axis| operands.iter().fold(along(axis), |split, index| split.operand(*index, axis))).collect()
    }
}

#[cfg(feature = "kernels")]
mod kernel {
    use super::*;
    use tract_core::internal::*;

    use crate::kernel::Wiring;

    impl Pooled {
        /// Wires moves that make the spatial axes adjacent and ordered; none if they are already.
        pub fn wire(&self, wiring: &mut Wiring<'_>, data: OutletId) -> TractResult<(OutletId, Moves)> {
            let first = self.at.iter().copied().min().unwrap_or(0);
            let mut order: Vec<usize> = (0..self.layout.rank()).collect();
            let (mut moves, mut at) = (Vec::new(), data);
            for (i, axis) in self.at.iter().enumerate() {
                let from = order.iter().position(|a| a == axis).context("a layout has every axis once")?;
                if from != first + i {
                    at = wiring.one(AxisOp::Move(from, first + i), &[at])?;
                    moves.push((from, first + i));
                    let moved = order.remove(from);
                    order.insert(first + i, moved);
                }
            }
            Ok((at, Moves { moves, first }))
        }
    }

    /// The moves that made the spatial axes adjacent, from axis `first` on.
    pub(crate) struct Moves {
        moves: Vec<(usize, usize)>,
        pub first: usize,
    }

    impl Moves {
        /// Wires the inverse moves.
        pub fn undo(&self, wiring: &mut Wiring<'_>, outlet: OutletId) -> TractResult<OutletId> {
            self.moves.iter().rev().try_fold(outlet, |at, (from, to)| wiring.one(AxisOp::Move(*to, *from), &[at]))
        }
    }
}
