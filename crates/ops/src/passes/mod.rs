//! Passes from graph to graph, and figures derived from the operators' definitions.
//!
//! | module | contents |
//! |---|---|
//! | [`retype`] | repeats type inference after dimensions are bound or operand values become known |
//! | [`bindings`](mod@bindings) | sizes of unknown dimensions, and selection among several by the shapes of inputs |
//! | [`shard`], `shard_calls` | the call that computes one shard of an operator; a cache of them |
//! | [`appended_states`](mod@appended_states) | states to which a step appends, as buffers of fixed length |
//! | [`axes`](mod@axes) | the axes along which an operator can be split: `declared`, of composite operators (`composite_axes`, `composite_reductions`, by `range_propagation` with `range_maps` and `packed_parts`), and of `carried` partial sums |
//! | [`shard_graph`] | splits operators of a graph into shards: `sharding` says how, `split_state` which states are divided too |
//! | [`tile`], `tile_bounds` | computes segments of a graph tile by tile; bounds inference |
//! | `rewriter` | rewrites a graph whose tensors exist as shards |
//! | `constant_copies` | what depends on parameters alone, copied for the shards that read it |
//! | [`decompose_quantisation`](mod@decompose_quantisation) | quantisation as elementary operators, for engines that translate them |
//! | [`reader_copies`] | copies of what is fused into its readers |
//! | [`index_ranges`](mod@index_ranges), `index_operands` | the values that indices and lengths among the inputs may have |
//! | [`summary`] | operator counts, FLOPs and sizes of a model |
//! | `opaque_flops` | FLOPs of operators without a definition |
//! | [`weights`] | which inputs of a model are weights |

pub mod appended_states;
pub mod axes;
pub mod bindings;
mod carried;
mod composite_axes;
mod composite_reductions;
mod constant_copies;
mod declared;
pub mod decompose_quantisation;
mod index_operands;
pub mod index_ranges;
mod opaque_flops;
mod packed_parts;
mod range_maps;
mod range_propagation;
pub mod reader_copies;
pub mod retype;
mod rewriter;
pub mod shard;
mod shard_calls;
pub mod shard_graph;
mod sharding;
mod split_state;
pub mod summary;
pub mod tile;
mod tile_bounds;
pub mod weights;
