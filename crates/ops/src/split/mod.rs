//! How operators can be split into shards: each family declares its split axes together with its type rule.
//!
//! | module | contents |
//! |---|---|
//! | [`axis`] | [`SplitAxis`]: the operand ranges that a shard reads, and how shard results combine |
//! | `composite_attrs` | how attributes of composite operators depend on sizes |
//! | [`linear`] | which operands an operator is linear in, so that partial sums pass through it |
//! | `packed_axis` | [`PackedAxis`]: several tensors one after the other along an axis |
//! | `rules` | split axes that several families share |

pub(crate) mod axis;
pub(crate) mod composite_attrs;
pub(crate) mod linear;
pub(crate) mod packed_axis;
pub(crate) mod rules;

pub(crate) use axis::scaled;
pub use axis::{AccessMap, AttrFn, DecompositionSplit, Join, MAX_REPLICAS, OperatorSplit, RangeFn, SplitAxis, gcd};
pub use linear::{Carried, Linearity};
pub use packed_axis::{PackedAxis, PackedAxisError, ShardedAxis};
pub(crate) use rules::{aligned, along_vectors, batch, elementwise, elementwise_on, off, with_entry};
