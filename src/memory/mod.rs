//! Memory of a device: who lives when, where it lies, and how to make it fit.
//!
//! Pure functions on graphs and tables; files and figures are made by the callers.
//!
//! | module | what it does |
//! |---|---|
//! | [`Buffer`], [`Packing`] | what an arena holds, and where |
//! | [`lifetimes`] | which bytes each tensor of a graph occupies, from when to when, in a given order |
//! | [`bound`] | the load over time, and what no packing can go below |
//! | [`arena`] | offsets: [`pack`] |
//! | [`minimalloc`] | packing problems as CSV |
//! | [`check`] | judges a packing from the buffers alone; shares no code with the searches |

pub mod arena;
pub mod bound;
mod buffer;
pub mod check;
mod lifetimes;
pub mod minimalloc;

pub use arena::{ArenaError, Options, pack};
pub use buffer::{Buffer, Packing};
pub use lifetimes::{Lifetimes, OrderError, Reuse, Sharing, lifetimes};
