//! Comparison of the types stated in a file with the inferred ones.

use edgecut_graph::SourceLocation;

/// The result of comparing the types stated in a file with the inferred ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypeChecks {
    /// Number of compared `ty=` comments and annotations.
    pub checked: usize,
    pub mismatches: Vec<TypeMismatch>,
}

/// A stated type that differs from the inferred one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeMismatch {
    pub place: SourceLocation,
    /// The type stated in the file.
    pub stated: String,
    /// The inferred type, or why there is none.
    pub inferred: String,
}
