//! Programs and schedules in the format of DLMO: `pattern.json` and `best.json`.
//!
//! `code` is a list of records that read the ids `ins` and write the ids `outs`; an id in both is overwritten in place.
//! `.dealloc` frees its `outs`; the one `out` of a `.share` is a view of its one `in`. An id that is read before it is
//! written is live throughout. A schedule has the same form as a program, so it can be read again.
//!
//! | module | contents |
//! |---|---|
//! | [`Pattern`], [`Record`] | the file format |
//! | `tensor_graph` | the same program as tensors and operators |
//! | [`LoweredPattern`] | a file as a program, and schedules as records |
//! | [`check`] | independent checker of schedules |

pub mod check;
mod error;
mod lowered_pattern;
mod pattern;
mod record;
mod tensor_graph;

pub use error::PatternError;
pub use lowered_pattern::LoweredPattern;
pub use pattern::Pattern;
pub use record::{Datum, Record};
