//! Printer: a parsed module, or a graph → Relay text that TVM reads.
//!
//! The layout is that of TVM's printer: graph normal form, variables numbered when an expression is finished, definitions
//! hoisted to the scope that first needs them. Floats are printed with all their digits, and names are made legal, so that
//! printed text is read back identically, here and by TVM.

mod attrs;
mod doc;
mod expr;
mod graph;
mod literal;
mod metadata_writer;
mod names;
mod printer;
mod task;
mod types;

pub use graph::{parameter_names, print_graph};
pub use printer::print;
