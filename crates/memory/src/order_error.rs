//! The error of everything that works on a graph in a given operator order.

/// Why the tensors of a graph have no lifetimes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("the order has {found} operators, the graph has {expected}")]
    Count { found: usize, expected: usize },
    #[error("the order is not topological: operator `{operator}` comes before its operand `{tensor}`, or occurs twice")]
    NotTopological { operator: String, tensor: String },
    #[error("the size of tensor `{tensor}` is unknown: one of its dimensions is bound only at run time")]
    UnknownSize { tensor: String },
}
