//! Storage rules of a graph: with the operator order they determine the lifetimes of tensors.

use edgecut_graph::{Alias, OperatorId, units::Bytes};

/// Storage reuse, workspaces and alignment of a graph's operators.
pub struct StorageRules<'a> {
    /// How an operator's result may share storage with its operands.
    pub alias: &'a dyn Fn(OperatorId) -> Alias,
    /// Scratch memory that an operator needs only while it runs.
    pub workspace: &'a dyn Fn(OperatorId) -> Bytes,
    /// Every offset is a multiple of this many bytes.
    pub align: u64,
}

impl StorageRules<'_> {
    /// Calls `with` with the same rules, except that [`Alias::Concat`] holds only for operators that `elide` accepts:
    /// all other concatenations copy.
    pub(crate) fn eliding<T>(
        &self,
        elide: &dyn Fn(OperatorId) -> bool,
        with: impl FnOnce(&StorageRules<'_>) -> T,
    ) -> T {
        let alias = |id: OperatorId| match (self.alias)(id) {
            Alias::Concat if !elide(id) => Alias::Never,
            alias => alias,
        };
        with(&StorageRules { alias: &alias, workspace: self.workspace, align: self.align })
    }
}
