//! CPU kernels: how operators are computed by tract.
//!
//! A *wired* kernel adds tract operators to a model under construction, so that tract optimises them together with
//! their neighbours. A *host* kernel is a function on whole tensors, wrapped as one opaque tract operator. Nothing here
//! knows an operator family.
//!
//! | module | contents |
//! |---|---|
//! | `wiring` | [`Wiring`]: adds tract operators to a model |
//! | `dispatch` | runs the kernel of a call's definition on a wiring |
//! | `host`, `custom` | host kernels and closures as tract operators |
//! | [`recipe`] | what a host or custom kernel computes, as data, for engines that cannot call the function |
//! | `facts` | dtypes and tensor types in tract's terms |
//! | `bfloat` | bfloat16 by conversion to float32 |
//! | `element`, [`pointwise`] | arithmetic on one element of any dtype; elementwise functions as tract operators |
//! | `indexing`, `remap` | multi-indices and strides; copies by per-axis index tables |
//! | [`contiguous_runs`] | loops over several tensors, of which some are broadcast |
//! | `window_loops`, [`phases`] | loops of convolutions and pooling; strided windows as contiguous loops |
//! | [`routine`] | tract's vectorised functions of one element |
//! | `moments`, `taps` | loops of normalisations; interpolation taps |

pub(crate) mod bfloat;
pub mod contiguous_runs;
pub(crate) mod custom;
mod dispatch;
pub(crate) mod element;
mod facts;
mod host;
pub(crate) mod indexing;
pub(crate) mod moments;
pub mod phases;
pub mod pointwise;
pub mod recipe;
pub(crate) mod remap;
pub mod routine;
pub(crate) mod taps;
pub(crate) mod window_loops;
pub(crate) mod wiring;

pub use facts::{datum_type, fact};
pub use host::recipe;
pub use wiring::Wiring;
