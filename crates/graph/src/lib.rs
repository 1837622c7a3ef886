//! The computation graph: operators and tensors in single-assignment form, and algorithms that need names, attributes
//! and types only. Knows neither Relay text nor the meaning of any operator.
//!
//! | module | contents |
//! |---|---|
//! | `graph` | [`Graph`]: a DAG of [`Operator`]s over [`Tensor`]s |
//! | `operator`, `arg` | how operators are built; their operands |
//! | `composite` | composite operators, replaced by their decompositions |
//! | `id` | [`TensorId`], [`OperatorId`] |
//! | `layer` | names of layers, unique names of operators |
//! | `alias` | storage reuse between the operands and results of an operator |
//! | `device_name` | [`DeviceName`]: a server and a device of it |
//! | `attrs`, `tensor`, `types`, `dtype` | attributes; tensors with content; shapes and types; element types |
//! | `validate` | invariants of a deserialized graph |
//! | `copy`, `part` | copies operators between graphs; [`Part`]: a subgraph as a graph |
//! | `fusion`, `fusion_class`, `fusion_vertices` | fused groups by TVM's rules; the classes of operators; TVM's view of a graph |
//! | `constant` | attaches parameter-only computations to the groups that read them |
//! | `contract` | contracts convex groups of operators to single operators |
//! | `state` | [`StatePair`]: an input and the output that it is in the next step |
//! | `topological` | [`topological_order`], by priority |
//! | [`query`] | Aidge's pattern language for finding groups of operators |
//! | [`units`] | bytes, microseconds, rates |

mod alias;
mod arg;
mod attrs;
mod composite;
mod constant;
mod contract;
mod copy;
mod device_name;
mod dtype;
mod engine_id;
mod fusion;
mod fusion_class;
mod fusion_vertices;
mod graph;
mod hoist;
mod id;
mod layer;
mod link;
mod operator;
mod part;
pub mod query;
mod state;
mod tensor;
mod topological;
mod types;
pub mod units;
mod validate;

pub use alias::{Alias, InPlacePolicy};
pub use arg::{Arg, SourceLocation};
pub use attrs::{Attr, Attrs};
pub use composite::{InlinedGraph, inline_composites};
pub use constant::{attach_constants, constant_operators, is_constant};
pub use contract::{ContractedGraph, ConvexGroups};
pub use device_name::{DeviceName, DeviceNameError, NameError, check_name};
pub use dtype::{DType, DTypeError, Exotic};
pub use engine_id::EngineId;
pub use fusion::{Granularity, fuse};
pub use fusion_class::FusionClass;
pub use graph::{Graph, Operator, Origin, Tensor};
pub use hoist::{HoistedGraph, hoist_constants};
pub use id::{OperatorId, TensorId};
pub use link::{FitError, LinkCost};
pub use part::{Part, Parts};
pub use state::{StateError, StatePair, StatePairError, StateTensors};
pub use tensor::{ContentHash, TensorData, TensorError};
pub use topological::topological_order;
pub use types::{Dim, Shape, TensorType, Type};
pub use validate::GraphError;
