//! A lower bound with the argument that proves it.

/// A value that no plan goes below, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct LowerBound<T> {
    pub value: T,
    pub by: &'static str,
}
