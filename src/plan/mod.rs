//! Planning: which device computes which group of operators, in which order, and what that will cost.
//!
//! Tables and graphs in, a [`Plan`] out; never an engine, a socket or a file. The same problem, seed and budget
//! give the same plan, however many threads there are.
//!
//! [`problem`] says what is asked, [`strategy`] how one group is placed, [`file`] what is answered.

pub mod file;
pub mod problem;
pub mod strategy;

pub use file::Plan;
pub use problem::{DeviceId, GroupId, Problem, TensorIndex};
pub use strategy::Strategy;
