//! What the search decides: an order, and for every read of a value how the value comes to be there.

use super::super::program::{OperatorIndex, Program, ValueIndex};

/// Index of a read in [`Reads`].
pub type ReadIndex = u32;

/// No read.
pub const NONE: ReadIndex = ReadIndex::MAX;

/// How a value comes to be there when an operator reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// It stays from its previous use on.
    #[default]
    Keep,
    /// It goes after its previous use and is made again; if something else makes it earlier, it stays from then on.
    Again,
    /// It goes after its previous use, and after everything that makes it earlier, and is made again.
    Late,
    /// It goes to the host and comes back as [`Choice::copies`] says.
    Copy,
}

/// When a value goes to the host and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The read before which it comes back.
    pub read: ReadIndex,
    /// It is stored before this operator of the order,
    pub store: OperatorIndex,
    /// and loaded before this one.
    pub load: OperatorIndex,
}

/// A schedule as the search changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// A topological order of all operators.
    pub order: Vec<OperatorIndex>,
    /// By read.
    pub modes: Vec<Mode>,
    pub copies: Vec<Transfer>,
    /// By value: whether it stays after its last read of the order for what is made again from it. It never stays
    /// longer than that.
    pub held: Vec<bool>,
}

/// All reads of a program, operator by operator.
#[derive(Debug)]
pub struct Reads {
    /// The first read of each operator, and the number of all reads.
    pub first: Vec<ReadIndex>,
    pub value: Vec<ValueIndex>,
    pub operator: Vec<OperatorIndex>,
}

/// A small change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Move {
    Mode(ReadIndex, Mode),
    Copy(Transfer),
    /// The operator moves to this place of the order.
    Shift(OperatorIndex, u32),
    /// The value is held, or is so no more.
    Hold(ValueIndex),
}

impl Reads {
    pub fn of(program: &Program) -> Reads {
        let mut reads = Reads { first: vec![0], value: Vec::new(), operator: Vec::new() };
        for (index, operator) in (0..).zip(&program.operators) {
            for &read in &operator.reads {
                reads.value.push(read);
                reads.operator.push(index);
            }
            reads.first.push(reads.value.len() as u32);
        }
        reads
    }

    /// The reads of one operator.
    pub fn of_operator(&self, operator: OperatorIndex) -> std::ops::Range<usize> {
        self.first[operator as usize] as usize..self.first[operator as usize + 1] as usize
    }
}

impl Choice {
    /// Program order, and everything stays.
    pub fn keep_all(program: &Program) -> Choice {
        let reads: usize = program.operators.iter().map(|o| o.reads.len()).sum();
        Choice {
            order: (0..program.operators.len() as u32).collect(),
            modes: vec![Mode::Keep; reads],
            copies: Vec::new(),
            held: vec![false; program.values.len()],
        }
    }

    /// Changes the choice and returns the change that undoes it, as long as no other came after it.
    pub fn apply(&mut self, change: Move) -> Undo {
        match change {
            Move::Mode(read, mode) => {
                let transfer = self.take(read);
                let was = std::mem::replace(&mut self.modes[read as usize], mode);
                Undo::Mode(read, was, transfer)
            }
            Move::Copy(transfer) => {
                let was = self.take(transfer.read);
                self.copies.push(transfer);
                let mode = std::mem::replace(&mut self.modes[transfer.read as usize], Mode::Copy);
                Undo::Mode(transfer.read, mode, was)
            }
            Move::Shift(operator, to) => {
                let from = self.order.iter().position(|o| *o == operator).unwrap_or(0);
                shift(&mut self.order, from, to as usize);
                Undo::Shift(to, from as u32)
            }
            Move::Hold(value) => {
                self.held[value as usize] ^= true;
                Undo::Hold(value)
            }
        }
    }

    pub fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Mode(read, mode, transfer) => {
                self.take(read);
                self.modes[read as usize] = mode;
                self.copies.extend(transfer);
            }
            Undo::Shift(from, to) => shift(&mut self.order, from as usize, to as usize),
            Undo::Hold(value) => self.held[value as usize] ^= true,
        }
    }

    /// Takes out the transfer for a read, if there is one.
    fn take(&mut self, read: ReadIndex) -> Option<Transfer> {
        if self.modes[read as usize] != Mode::Copy {
            return None;
        }
        let at = self.copies.iter().position(|c| c.read == read)?;
        Some(self.copies.swap_remove(at))
    }
}

/// What undoes a [`Move`].
#[derive(Debug, Clone, Copy)]
pub enum Undo {
    Mode(ReadIndex, Mode, Option<Transfer>),
    Shift(u32, u32),
    Hold(ValueIndex),
}

fn shift(order: &mut [OperatorIndex], from: usize, to: usize) {
    if from < to {
        order[from..=to].rotate_left(1);
    } else {
        order[to..=from].rotate_right(1);
    }
}
