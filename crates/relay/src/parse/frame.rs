//! The stack frames and steps of the expression parser.

use crate::{
    ast::{ExprId, VarId},
    token::Token,
};

/// A construct that waits for a subexpression. `start` is the byte offset at which it began; `lets`, `items`, `patterns` and
/// `scopes` are the heights of the parser's stacks then.
#[derive(Debug, Clone, Copy)]
pub(super) enum Frame {
    /// Statements, and their result.
    Sequence {
        lets: u32,
        scopes: u32,
    },
    LetValue(VarId),
    GraphValue(u64),
    Infix {
        left: ExprId,
        operator: Token,
    },
    Block,
    /// `(…)`, and whether there was a comma.
    Paren {
        start: u32,
        items: u32,
        comma: bool,
    },
    /// The operands of a call.
    Args {
        start: u32,
        callee: ExprId,
        items: u32,
        comma: bool,
    },
    Condition {
        start: u32,
    },
    Then {
        start: u32,
        condition: ExprId,
    },
    Otherwise {
        start: u32,
        condition: ExprId,
        then: ExprId,
    },
    Body {
        start: u32,
    },
    NewRef {
        start: u32,
    },
    ReadRef {
        start: u32,
    },
    WriteTarget {
        start: u32,
    },
    WriteValue {
        start: u32,
        target: ExprId,
    },
    /// The value that a `match` looks at, an atom.
    Scrutinee {
        start: u32,
        complete: bool,
    },
    /// The value of an arm of a `match`.
    Arm {
        start: u32,
        complete: bool,
        scrutinee: ExprId,
        items: u32,
        patterns: u32,
        scopes: u32,
    },
}

/// The next step of the automaton.
pub(super) enum Step {
    /// Begin a sequence.
    Sequence,
    /// Read a statement of the sequence on top, or its result.
    Statement,
    /// Read an operand of an infix expression.
    Operand,
    /// An atom or call is finished; calls and infix operators may follow. It is sealed after a call and, in strict mode, after
    /// a projection: then no `.` may follow, and `(` begins a call even in a scrutinee.
    Atom { expr: ExprId, sealed: bool },
    /// An infix expression is finished.
    Value(ExprId),
    /// A sequence is finished.
    Result(ExprId),
}
