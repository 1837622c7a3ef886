//! Operands of an operator, and the source location of its call.

use serde::{Deserialize, Serialize};

use crate::id::TensorId;

/// One operand: a tensor, or a tuple of tensors (`concatenate`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arg {
    Tensor(TensorId),
    Tuple(Vec<TensorId>),
}

/// Line and column in a text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocation {
    pub line: u32,
    pub column: u32,
}

impl Arg {
    /// The tensors of the operand, in order.
    pub fn tensors(&self) -> &[TensorId] {
        match self {
            Arg::Tensor(tensor) => std::slice::from_ref(tensor),
            Arg::Tuple(tensors) => tensors,
        }
    }
}

impl From<TensorId> for Arg {
    fn from(tensor: TensorId) -> Arg {
        Arg::Tensor(tensor)
    }
}

impl From<Vec<TensorId>> for Arg {
    fn from(fields: Vec<TensorId>) -> Arg {
        Arg::Tuple(fields)
    }
}
