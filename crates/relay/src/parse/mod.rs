//! Parser: text → [`Module`](crate::ast::Module), in one pass over the tokens and without recursion over nested
//! expressions.
//!
//! Knows the grammar and the scopes of names; does not know the meaning of operators or the contents of the metadata
//! section.

mod atom;
mod attribute_lists;
mod attrs;
mod call;
mod expr;
mod frame;
mod function;
mod matching;
pub(crate) mod number;
mod parser;
mod scope;
mod types;

pub(crate) use parser::parse_module;
