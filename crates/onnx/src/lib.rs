//! ONNX models: reading them into the computation graph, and writing graphs as models.
//!
//! Every ONNX operator is expressed by operators of the graph, as TVM's ONNX frontend did; shape arithmetic is computed
//! during the import.
//!
//! | module | contents |
//! |---|---|
//! | [`import`](fn@import) | bytes → graph; [`ImportOptions`] |
//! | `proto` | the messages of ONNX's protocol |
//! | [`error`] | errors with graph, operator and attribute |
//! | `tensor` | element types, tensors, external data |
//! | `lowering` | nodes → operators: names in scope, type inference, folding |
//! | `call` | one node: typed access to its inputs and attributes |
//! | `compose` | operators that many families compose |
//! | [`export`](fn@export) | graph → model; its own table of families |
//! | `families` | one file an operator family; `families::FAMILIES` is the registry |
//!
//! Knows `graph` and `ops`; does not know engines, devices, plans or terminals.

mod call;
mod compose;
pub mod error;
mod export;
mod families;
mod import;
mod lowering;
mod proto;
mod tensor;

pub use error::OnnxError;
pub use export::{ExportError, ExportOptions, Exported, export, expressible};
pub use import::{Evaluate, ImportOptions, import, is_onnx};
