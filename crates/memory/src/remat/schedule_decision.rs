//! What the search decides: an operator order, and for every read of a value how the value becomes available.

use crate::program::{OperatorIndex, Program, ValueIndex};

/// Index of a read in [`Reads`].
pub type ReadIndex = u32;

/// Stands for no read.
pub(super) const NO_READ: ReadIndex = ReadIndex::MAX;

/// How a value becomes available to the operator that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadMode {
    /// It is kept from its previous use.
    #[default]
    Keep,
    /// It is freed after its previous use and recomputed; if another recomputation yields it earlier, it is kept from
    /// then on.
    Remat,
    /// It is freed after its previous use and after every earlier recomputation, and recomputed for this read.
    RematLate,
    /// It is copied to the host and back, as [`ScheduleDecision::transfers`] says.
    Offload,
}

/// When a value is copied to the host and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTransfer {
    /// The read before which it is copied back.
    pub read: ReadIndex,
    /// The operator of the order before which it is stored.
    pub store: OperatorIndex,
    /// The operator of the order before which it is loaded.
    pub load: OperatorIndex,
}

/// A schedule in the representation of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleDecision {
    /// A topological order of all operators.
    pub order: Vec<OperatorIndex>,
    /// The mode of each read.
    pub modes: Vec<ReadMode>,
    pub transfers: Vec<HostTransfer>,
    /// For each value whether it stays live after its last read in the order, for recomputations that read it.
    pub retained: Vec<bool>,
}

/// All reads of a program, operator by operator.
#[derive(Debug)]
pub(super) struct Reads {
    /// The first read of each operator, and the number of all reads.
    pub first: Vec<ReadIndex>,
    pub value: Vec<ValueIndex>,
}

/// A change of a decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ScheduleMove {
    Mode(ReadIndex, ReadMode),
    Offload(HostTransfer),
    /// Moves the operator to a position of the order.
    Shift(OperatorIndex, u32),
    /// Toggles whether the value is retained.
    Retain(ValueIndex),
}

/// The inverse of a [`ScheduleMove`].
#[derive(Debug, Clone, Copy)]
pub(super) enum UndoMove {
    Mode(ReadIndex, ReadMode, Option<HostTransfer>),
    Shift(u32, u32),
    Retain(ValueIndex),
}

impl Reads {
    pub fn of(program: &Program) -> Reads {
        let mut reads = Reads { first: vec![0], value: Vec::new() };
        for operator in &program.operators {
            reads.value.extend(&operator.reads);
            reads.first.push(reads.value.len() as u32);
        }
        reads
    }

    /// The reads of one operator.
    pub fn of_operator(&self, operator: OperatorIndex) -> std::ops::Range<usize> {
        self.first[operator as usize] as usize..self.first[operator as usize + 1] as usize
    }
}

impl ScheduleDecision {
    /// Program order with every value kept.
    pub fn keep_all(program: &Program) -> ScheduleDecision {
        let reads: usize = program.operators.iter().map(|o| o.reads.len()).sum();
        ScheduleDecision {
            order: (0..program.operators.len() as u32).collect(),
            modes: vec![ReadMode::Keep; reads],
            transfers: Vec::new(),
            retained: vec![false; program.values.len()],
        }
    }

    /// Applies a move and returns its inverse, which is valid until the next move.
    pub(super) fn apply(&mut self, change: ScheduleMove) -> UndoMove {
        match change {
            ScheduleMove::Mode(read, mode) => {
                let transfer = self.take_transfer(read);
                let was = std::mem::replace(&mut self.modes[read as usize], mode);
                UndoMove::Mode(read, was, transfer)
            }
            ScheduleMove::Offload(transfer) => {
                let was = self.take_transfer(transfer.read);
                self.transfers.push(transfer);
                let mode = std::mem::replace(&mut self.modes[transfer.read as usize], ReadMode::Offload);
                UndoMove::Mode(transfer.read, mode, was)
            }
            ScheduleMove::Shift(operator, to) => {
                let from = self.order.iter().position(|o| *o == operator).unwrap_or(0);
                shift(&mut self.order, from, to as usize);
                UndoMove::Shift(to, from as u32)
            }
            ScheduleMove::Retain(value) => {
                self.retained[value as usize] ^= true;
                UndoMove::Retain(value)
            }
        }
    }

    pub(super) fn undo(&mut self, undo: UndoMove) {
        match undo {
            UndoMove::Mode(read, mode, transfer) => {
                self.take_transfer(read);
                self.modes[read as usize] = mode;
                self.transfers.extend(transfer);
            }
            UndoMove::Shift(from, to) => shift(&mut self.order, from as usize, to as usize),
            UndoMove::Retain(value) => self.retained[value as usize] ^= true,
        }
    }

    /// Removes the transfer of a read, if it has one.
    fn take_transfer(&mut self, read: ReadIndex) -> Option<HostTransfer> {
        if self.modes[read as usize] != ReadMode::Offload {
            return None;
        }
        let at = self.transfers.iter().position(|transfer| transfer.read == read)?;
        Some(self.transfers.swap_remove(at))
    }
}

fn shift(order: &mut [OperatorIndex], from: usize, to: usize) {
    if from < to {
        order[from..=to].rotate_left(1);
    } else {
        order[to..=from].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_are_undone() {
        let transfer = HostTransfer { read: 1, store: 0, load: 2 };
        let mut decision = ScheduleDecision {
            order: vec![0, 1, 2, 3],
            modes: vec![ReadMode::Keep, ReadMode::Offload, ReadMode::Remat],
            transfers: vec![transfer],
            retained: vec![false, true],
        };
        let original = decision.clone();
        for change in [
            ScheduleMove::Mode(0, ReadMode::RematLate),
            ScheduleMove::Mode(1, ReadMode::Keep),
            ScheduleMove::Offload(HostTransfer { read: 1, store: 1, load: 3 }),
            ScheduleMove::Offload(HostTransfer { read: 2, store: 1, load: 3 }),
            ScheduleMove::Shift(0, 3),
            ScheduleMove::Shift(3, 1),
            ScheduleMove::Retain(1),
        ] {
            let undo = decision.apply(change);
            assert_ne!(decision, original, "{change:?}");
            decision.undo(undo);
            assert_eq!(decision, original, "{change:?}");
        }
    }
}
