//! Memory of a device: lifetimes, operator order, arena layout, rematerialisation, tiling, bounds, checkers.
//!
//! Pure functions on graphs and tables. No files, no sockets, no engines.
//!
//! | module | contents |
//! |---|---|
//! | [`StorageRules`], [`OrderError`] | aliasing, workspaces and alignment of a graph's operators |
//! | [`Buffer`], [`Packing`], [`Pool`] | lifetimes with sizes, and their offsets |
//! | [`lifetimes`] | the buffers of a graph's tensors in a given order |
//! | [`order`] | the operator order of minimum peak |
//! | `concat_slots`, `concat_elision` | concatenations whose operands are produced in place |
//! | [`arena`] | offsets: [`pack`] for one memory, [`arena::pools`] for several |
//! | [`place`], [`Placement`] | a graph's tensors in an arena, in the best order found |
//! | [`bound`] | the load over time, and lower bounds on arenas and peaks |
//! | [`check`] | independent checkers of packings, placements and schedules |
//! | [`problem`] | a graph with its times, workspaces and storage rules: what is placed and scheduled |
//! | [`roofline`] | times of operators that no profile has |
//! | [`target`] | the limit that a schedule must keep |
//! | [`meta`] | meta-operators: patterns of operators that run as one |
//! | [`program`], `lower` | operators with times and values with sizes; graphs as programs |
//! | [`remat`] | schedules with less memory: reordering, rematerialisation, copies to the host |
//! | `schedule_buffers` | the buffers of a schedule |
//! | [`model`] | schedules of a model as graphs that any engine runs, with segments computed in parts |
//! | [`liveness`], [`trace`](mod@trace) | births, deaths and idle periods of tensors in a kernel trace |
//! | [`tvm`] | the arena of TVM's memory planner, for comparison |

pub mod arena;
pub mod bound;
mod buffer;
pub mod check;
mod concat_elision;
mod concat_slots;
mod lifetimes;
pub mod liveness;
mod lower;
pub mod meta;
pub mod model;
pub mod order;
mod order_error;
pub mod place;
mod placement;
mod pool;
pub mod problem;
pub mod program;
pub mod remat;
pub mod roofline;
mod schedule_buffers;
mod storage_rules;
pub mod target;
pub mod trace;
pub mod tvm;

pub use arena::{ArenaError, PackOptions, pack};
pub use buffer::{Buffer, Packing};
pub use lifetimes::{Lifetimes, lifetimes};
pub use order_error::OrderError;
pub use placement::Placement;
pub use pool::{Pool, PoolPacking};
pub use storage_rules::StorageRules;
