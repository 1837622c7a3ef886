//! Memory of one device: tensors placed in an arena, buffers packed, liveness, and schedules within a limit. Every result
//! has a lower bound.
//!
//! ```no_run
//! use edgecut_session::{Events, memory};
//!
//! # fn main() -> Result<(), edgecut_session::Error> {
//! let options = memory::PlaceOptions::default();
//! let placed = memory::place("m.onnx".as_ref(), &options, &Events::default())?;
//! println!("{}, at least {}", placed.summary.arena_bytes, placed.summary.bound_arena_bytes);
//! let options = memory::ScheduleOptions { limit: "40%".parse().ok(), ..memory::ScheduleOptions::default() };
//! memory::schedule("m.onnx".as_ref(), &options, &Events::default())?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`subject`], `stored_profile` | models and networks of bare tensors, with times; profiles that are found by the model |
//! | [`mod@place`], [`figures`] | the tensors of a model in an arena, in the order of minimum peak; figures of it |
//! | [`mod@pack`] | offsets for buffers with given lifetimes, in one arena or several memories |
//! | [`mod@liveness`] | births, deaths and idle periods of tensors, of a model or of a traced PyTorch graph |
//! | [`mod@schedule`] | schedules with less memory, of models and of graphs of DLMO and MAGIS |
//! | `effort` | budgets of searches |

mod effort;
pub mod figures;
pub mod liveness;
pub mod pack;
pub mod place;
pub mod schedule;
mod stored_profile;
pub mod subject;

pub use figures::FigureOptions;
pub use liveness::{LivenessOptions, TraceOptions, liveness, liveness_of_trace};
pub use pack::{PackOptions, pack};
pub use place::{PlaceOptions, place};
pub use schedule::{
    options::{ScheduleOptions, SearchOptions},
    schedule, schedule_batch,
};
pub use subject::SubjectOptions;
