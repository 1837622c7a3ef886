//! ONNX models: reading them into the computation graph, and writing graphs as models.
//!
//! Operators of ONNX are expressed by those of the graph, as in TVM's ONNX frontend, recurrent layers by operators that TVM
//! lacks; shape arithmetic is computed during the import. A node that an engine has a kernel for becomes a composite
//! operator, and one without an equivalent an opaque operator.
//!
//! | module | contents |
//! |---|---|
//! | [`import`](fn@import) | bytes → graph |
//! | `options` | [`ImportOptions`]: sizes, contents, and how to compute |
//! | `interface` | [`Interface`]: inputs, defaults and outputs as the file states them; [`Decision`] |
//! | `unknown_dim` | [`UnknownDim`]: a dimension whose size the file leaves open |
//! | `open_model` | [`OpenModel`]: what can be read from a file before its unknown dimensions are bound |
//! | `proto` | the messages of ONNX's protocol |
//! | [`error`] | errors with graph, operator and attribute |
//! | `tensor` | element types, tensors |
//! | `external` | contents of tensors in other files |
//! | `budget` | limits in proportion to a file's size |
//! | `lowering` | nodes → operators: names in scope, type inference, folding |
//! | `node_name` | names of nodes and operators in messages |
//! | [`kernel_names`](fn@kernel_names) | what ONNX Runtime calls the nodes of a file |
//! | `murmur3` | the hash in these names |
//! | `node_order` | topological order of nodes |
//! | `inputs` | inputs, defaults, parameters and constants of a model |
//! | `fold` | type inference as operators are added; folding |
//! | `live` | removes what no output needs |
//! | `composite` | nodes as composite operators |
//! | `in_place` | operands whose storage a result may have in ONNX Runtime |
//! | `opaque` | nodes as operators with their own names and attributes, and back |
//! | `result_types` | result types of opaque operators, which an engine infers where the file has none |
//! | `sharding` | device configurations and shardings, read and written |
//! | `seed` | seeds of operators that draw random numbers |
//! | `call` | one node: typed access to its inputs and attributes |
//! | `compose` | operators that many families compose |
//! | [`export`](fn@export) | graph → model; its own table of families |
//! | `families` | one file an operator family; `families::FAMILIES` is the registry |
//!
//! Knows `graph` and `ops`; does not know engines, devices, plans or terminals.

mod budget;
mod call;
mod compose;
mod composite;
pub mod error;
mod export;
mod external;
mod families;
mod fold;
mod import;
mod in_place;
mod inputs;
mod interface;
mod kernel_names;
mod live;
mod lowering;
mod murmur3;
mod node_name;
mod node_order;
mod opaque;
mod open_model;
mod options;
mod proto;
mod result_types;
mod seed;
mod sharding;
mod tensor;
#[cfg(test)]
mod test_models;
mod unknown_dim;

pub use error::OnnxError;
pub use export::{
    ExportError, ExportOptions, Exported, NodeValue, Weight, WeightContent, WrittenNode, export, expressible,
};
pub use import::{Imported, import, is_onnx};
pub use in_place::in_place;
pub use interface::{Decision, Interface};
pub use kernel_names::{KernelNames, kernel_names};
pub use open_model::OpenModel;
pub use options::{Content, Defaults, Evaluate, ImportOptions, InferTypes};
pub use sharding::{DeviceConfiguration, NodeSharding, Shape, ShardedDim, ShardedModel, ShardingError, TensorSharding};
pub use tensor::{dtype, element_type};
pub use unknown_dim::UnknownDim;
