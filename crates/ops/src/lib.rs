//! What operators mean: attributes, type rule, cost, aliasing, split axes and kernel of every Relay operator, and the
//! graph passes built on these.
//!
//! To add an operator, add its line to the table `OPS` of a family; to add a family, add its file and a line in
//! `families::FAMILIES`. This crate knows graphs, and tract for the kernels; it knows no text, engine, plan or file.
//!
//! The feature `kernels` compiles the kernels. Without it tract is no dependency, and [`Kernel`] only shows whether an
//! operator has one.
//!
//! | module | contents |
//! |---|---|
//! | `def` | [`OpDef`]: the definition of an operator; [`Call`], [`Typed`]: one call of it |
//! | `attr`, `rules` | typed access to attributes and operands; type rules that families share |
//! | `layout`, [`window`], `window_attrs` | layout strings; sliding windows |
//! | [`split`] | split axes: what a shard needs of each operand, and how results of shards combine |
//! | `kernel` | how calls become tract operators (feature `kernels`) |
//! | `families` | one file an operator family |
//! | `registry` | all operators by name |
//! | `composite_kernels`, `omitted_inputs` | kernels of composite operators; which inputs their arguments are |
//! | [`passes`] | from graph to graph: type inference, sharding, tiling |

// Of types that rules and kernels share, the former leave members unread.
#![cfg_attr(not(feature = "kernels"), allow(dead_code))]

mod attr;
#[macro_use]
mod def;
mod composite_kernels;
mod families;
#[cfg(feature = "kernels")]
pub mod kernel;
mod layout;
mod omitted_inputs;
pub mod passes;
mod registry;
mod rules;
pub mod split;
mod taps;
pub mod window;
mod window_attrs;

pub use composite_kernels::{composite_kernel, int8_activations};
pub use def::{AttrDef, AttrKind, Call, Kernel, ONNX, OpDef, SEMANTICS, TypeError, Typed, Unsupported};
pub use edgecut_graph::{Alias, FusionClass};
pub use families::qnn::fixed_point::{FixedPoint, Ties};
pub use families::recurrent::RecurrentCell;
pub use omitted_inputs::OMITTED_INPUTS;
pub use registry::{all, is_contiguous_concat, is_view, lookup};
