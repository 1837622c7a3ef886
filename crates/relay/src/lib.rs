//! TVM Relay text: reading it into the computation graph, and printing it.
//!
//! | module | contents |
//! |---|---|
//! | [`import`](fn@import) | bytes → [`Import`], a typed graph; [`parse`](fn@parse) stops at the syntax |
//! | [`ImportOptions`], [`TypeChecks`] | options of an import; stated types compared with the inferred ones |
//! | `token`, `parse/` | tokens; text → [`ast::Module`] |
//! | [`ast`] | the syntax of a module, in arenas |
//! | `strict` | checks of TVM's parser that the tolerant mode skips |
//! | `lower/` | module → graph: evaluates the entry function, inlines everything, infers all types |
//! | `metadata`, `record`, [`Params`] | the metadata section, serialised tensors, `.params` files |
//! | [`print`] | modules and graphs → text |
//! | [`eop_numbering`] | operator numbers as in profiles of EOP |
//! | [`ImportError`], [`Fault`], [`SourceSnippet`] | errors with line, column and excerpt |
//!
//! Knows `graph` and `ops`; does not know devices, plans or terminals.

pub mod ast;
pub mod eop_numbering;
mod error;
mod import;
mod lower;
mod metadata;
mod options;
mod params;
mod parse;
pub mod print;
mod record;
mod strict;
mod suggest;
mod token;
mod type_checks;
mod unescape;

pub use error::{Fault, ImportError, SourceSnippet, Span};
pub use import::{Import, import, parse};
pub use options::{Evaluate, ExternalCalls, ImportOptions};
pub use params::Params;
pub use token::ParseMode;
pub use type_checks::{TypeChecks, TypeMismatch};
