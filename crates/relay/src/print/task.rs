//! The tasks of the expression printer.

use crate::ast::{ExprId, VarId};

/// A pending task; the stack is processed last first.
#[derive(Debug, Clone, Copy)]
pub(super) enum PrintTask {
    /// Print and push the text, or the graph variable it is bound to. `tail`: inline if used only here.
    Print { expr: ExprId, tail: bool },
    /// Replace the text on top by the reference to the expression.
    Finish { expr: ExprId, tail: bool },
    /// Assemble the expression from the texts of its parts on top.
    Assemble(ExprId),
    /// Open a scope for definitions.
    Open,
    /// Close the scope: its definitions and the text on top become one text.
    Close,
    /// The text on top is the value of a let: write the line.
    LetLine(VarId, ExprId),
}
