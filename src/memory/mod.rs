//! Memory of a device: who lives when, where it lies, and how to make it fit.
//!
//! Pure functions on graphs and tables; files and figures are made by the callers.
//!
//! | module | what it does |
//! |---|---|
//! | [`Buffer`], [`Packing`] | what an arena holds, and where |
//! | [`lifetimes`] | which bytes each tensor of a graph occupies, from when to when, in a given order |
//! | [`liveness`] | births, deaths and idle periods of tensors; [`trace`] of a graph |
//! | [`fx`], [`g10`] | traced PyTorch graphs in, G10's reports out |
//! | `joined` | concatenations whose operands are made in place |
//! | [`lower`] | a graph as a [`program`], schedules as buffers |
//! | [`order`] | the order of least peak |
//! | [`meta`] | meta-operators: patterns of operators that run as one |
//! | [`place`] | a graph's tensors in an arena, in the best order |
//! | [`network`] | networks given as bare tensors and operators |
//! | [`bound`] | the load over time, and what no packing can go below |
//! | [`arena`] | offsets: [`pack`] |
//! | [`program`] | operators with times and values with sizes: what fitting works on |
//! | [`fit`] | less memory by another order, by making values again, by copies to the host |
//! | [`dlmo`] | such programs as DLMO writes them |
//! | [`model`] | schedules of a model as graphs that run, with stretches of it computed in parts |
//! | [`magis`] | the same as MAGIS writes them, with splits along the batch |
//! | [`minimalloc`] | packing problems as CSV |
//! | [`workload`] | a DLMO or MAGIS file, its schedules, and the one that meets a target |
//! | [`unmade`] | what no schedule can go below, however often it makes a value |
//! | [`tvm`] | the arena that TVM would make, to compare with |
//! | [`check`] | judges packings and schedules from the problem alone; shares no code with the searches |

pub mod arena;
pub mod bound;
mod buffer;
pub mod check;
pub mod dlmo;
pub mod fit;
pub mod fx;
pub mod g10;
mod joined;
mod lifetimes;
pub mod liveness;
pub mod lower;
pub mod magis;
pub mod meta;
pub mod minimalloc;
pub mod model;
pub mod network;
pub mod order;
pub mod place;
pub mod program;
mod spikes;
pub mod trace;
pub mod tvm;
pub mod unmade;
pub mod workload;

pub use arena::{ArenaError, Options, pack};
pub use buffer::{Buffer, Packing};
pub use lifetimes::{Lifetimes, OrderError, Reuse, Sharing, lifetimes};
