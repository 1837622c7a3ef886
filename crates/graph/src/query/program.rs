//! A compiled query: the program of a backtracking matcher.

use super::parse::{Edge, Kind};
use crate::id::{OperatorId, TensorId};

/// A query, compiled for matching.
#[derive(Debug, Clone)]
pub struct Query {
    pub(super) program: Vec<Instruction>,
    /// Number of anchors.
    pub(super) anchors: usize,
    pub(super) conditions: Vec<String>,
}

/// The object of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Operator(OperatorId),
    /// A parameter or input: `Parameter[…]`, `Input[…]`.
    Tensor(TensorId),
}

impl Query {
    /// The names of its conditions, without duplicates.
    pub fn conditions(&self) -> &[String] {
        &self.conditions
    }
}

/// An instruction of the matcher. The state of a search includes its *ends*: the operators matched last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Follows the edge from all ends to one matching operator; without an edge, selects one anywhere.
    Visit {
        edge: Option<Edge>,
        target: Target,
    },
    /// Requires a tensor of this kind at the other side of the edge.
    Outside {
        edge: Edge,
        kind: Kind,
        condition: Option<String>,
    },
    /// Continues at the first address; on backtracking, at the second.
    Either(usize, usize),
    Jump(usize),
    /// Begins branches: saves the ends.
    Fork,
    /// Ends a branch: stores its ends and restores the saved ones.
    Branch,
    /// Ends the last branch: the ends are those of all branches.
    Join,
    Accept,
}

/// The conditions on an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// `None` matches any name.
    pub name: Option<String>,
    pub condition: Option<String>,
    /// Index of its anchor.
    pub anchor: Option<usize>,
    /// Whether it becomes part of the match.
    pub taken: bool,
}
