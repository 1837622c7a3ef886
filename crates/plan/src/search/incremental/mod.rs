//! Incremental simulation: the times of a placement after a move, without simulating what the move cannot affect.
//!
//! A move affects nothing before the first instant at which one of its groups could start, or could have let another one
//! start. The state at that instant follows from the times of the last simulation, so the simulation resumes there, with
//! the rules of [`simulate`](crate::judge::simulate): times are bitwise equal. A move is abandoned as soon as it is certain to be
//! too slow, and undone from a log.
//!
//! | module | part of [`IncrementalSimulator`] |
//! |---|---|
//! | `state` | the placement and its times |
//! | `moves` | changes, and undoing them |
//! | `simulation` | resuming the simulation |

mod moves;
mod simulation;
mod state;

pub use self::state::{Change, IncrementalSimulator};
