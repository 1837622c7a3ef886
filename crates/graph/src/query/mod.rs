//! Aidge's graph pattern language, which selects the operators of a meta-operator.
//!
//! `nn.conv2d->nn.batch_norm->nn.relu?` matches a convolution, the batch normalisation that is its only reader, and an
//! optional ReLU. The grammar:
//!
//! ```text
//! QUERY       = SEQUENCE (';' SEQUENCE)*          all but the first begin at an anchor of an earlier sequence
//! SEQUENCE    = ELEMENT (EDGE ELEMENT)*
//! ELEMENT     = (OPERATOR | BLOCK) QUANTIFIER?
//! BLOCK       = '(' SEQUENCE ')' | '(' ELEMENT ('&' ELEMENT)+ ')' | '(' ELEMENT ('|' ELEMENT)+ ')'
//! QUANTIFIER  = '?' | '*' | '+' | '{' NUMBER '}'
//! EDGE        = ('-' | '~') (INDEX '-')? INDEX? '>'     from an output of the left to an operand of the right
//!             | '<' (INDEX '-')? INDEX? ('-' | '~')     from an output of the right to an operand of the left
//! INDEX       = NUMBER | '*'                            default 0, '*' any; a single index is the operand's
//! OPERATOR    = '^'? (NAME | '.' | '$') ('[' CONDITION ']')? ('#' ANCHOR?)?
//! ```
//!
//! `-` requires that nothing else reads the output; `~` does not. `.` matches any operator. `$` ends a sequence: after `>`
//! nothing outside the match reads the output; after `<` the operand is not produced by an operator, and `Parameter` (or
//! `Producer`) and `Input` restrict its origin. All branches of `&` start where the block starts, and the element after
//! the block follows all of them; of `|` the first branch that leads to a match is taken. An element with `*` or `+`
//! repeats along the edge that leads to it. `^` matches an operator without making it part of the match. An anchor is
//! identified by the operator's name and its own: `add#1` and `multiply#1` are different.
//!
//! The language is that of Aidge's `fuse_to_metaops` (`graph/Matching.hpp`), whose `[lambda]` are named conditions here.
//!
//! | module | contents |
//! |---|---|
//! | `parse` | text to syntax tree |
//! | `compile` | syntax tree to a program for a backtracking matcher |
//! | `program` | [`Query`]: the program and its instructions |
//! | `find` | the matcher |

mod compile;
mod error;
mod find;
mod parse;
mod program;

pub use error::{QueryError, SearchLimitExceeded};
pub use program::{Query, Subject};
