//! Aidge's fusion query language over the operators of a graph: what makes up a meta-operator.
//!
//! `nn.conv2d->nn.batch_norm->nn.relu?` is a convolution, what reads nothing but it, and so on. In full:
//!
//! ```text
//! QUERY       = SEQUENCE (';' SEQUENCE)*          all but the first begin at an anchor that was met before
//! SEQUENCE    = ELEMENT (EDGE ELEMENT)*
//! ELEMENT     = (OPERATOR | BLOCK) QUANTIFIER?
//! BLOCK       = '(' SEQUENCE ')' | '(' ELEMENT ('&' ELEMENT)+ ')' | '(' ELEMENT ('|' ELEMENT)+ ')'
//! QUANTIFIER  = '?' | '*' | '+' | '{' NUMBER '}'
//! EDGE        = ('-' | '~') (INDEX '-')? INDEX? '>'     from an output of the left to an operand of the right
//!             | '<' (INDEX '-')? INDEX? ('-' | '~')     from an output of the right to an operand of the left
//! INDEX       = NUMBER | '*'                            0 if it is not given, '*' any; one alone is the operand's
//! OPERATOR    = '^'? (NAME | '.' | '$') ('[' CONDITION ']')? ('#' ANCHOR?)?
//! ```
//!
//! `-` wants that nothing but this edge reads the output, `~` does not care. `.` is any operator. `$` ends a sequence:
//! after `>` nothing outside the match reads the output, after `<` no operator makes the operand; `Parameter` (or
//! `Producer`) and `Input` say which. All branches of `&` start where the block starts, and what follows the block follows
//! all of them; of `|` the first branch that leads to a match is taken. An element with `*` or `+` is reached again from
//! itself by the edge that leads to it. `^` looks at an operator without taking it. An anchor names an operator together
//! with its name: `add#1` and `multiply#1` are two.
//!
//! The language is that of Aidge's `fuse_to_metaops` (`graph/Matching.hpp`), whose `[lambda]` are conditions here.

mod compile;
mod find;
mod parse;

use std::ops::Range;

use super::{OperatorId, TensorId};
use compile::Instruction;

/// A query, ready to be searched for.
#[derive(Debug, Clone)]
pub struct Query {
    program: Vec<Instruction>,
    /// How many anchors it has.
    anchors: usize,
    conditions: Vec<String>,
}

/// Why a text is no query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct QueryError {
    pub message: String,
    /// Bytes of the text that it is about.
    pub span: Range<usize>,
}

/// What a condition is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Operator(OperatorId),
    /// What comes from outside: `Parameter[…]`, `Input[…]`.
    Tensor(TensorId),
}

/// A query leaves so many choices in a graph that not all of them were tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the query leaves too many choices: {steps} steps did not try all of them; more names or `->` for `~>` leave fewer"
)]
pub struct TooManyChoices {
    pub steps: u64,
}

impl Query {
    /// # Errors
    /// If the text is no query; the error says where.
    pub fn parse(text: &str) -> Result<Query, QueryError> {
        compile::compile(&parse::parse(text)?)
    }

    /// The conditions that it names, each once.
    pub fn conditions(&self) -> &[String] {
        &self.conditions
    }
}
