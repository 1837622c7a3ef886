//! Errors of parsing and matching.

use std::ops::Range;

/// Why a text is not a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    pub message: String,
    /// Byte range in the text.
    pub span: Range<usize>,
}

impl QueryError {
    pub(super) fn new(span: Range<usize>, message: impl Into<String>) -> QueryError {
        QueryError { message: message.into(), span }
    }
}

/// The search space of a query in a graph was not exhausted within the step limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the query is too ambiguous: the search stopped after {steps} steps; operator names and `->` instead of `~>` narrow it"
)]
pub struct SearchLimitExceeded {
    pub steps: u64,
}
