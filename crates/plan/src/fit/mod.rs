//! Plans within memory limits: schedules that need less memory, and tensors kept on another device.
//!
//! Uses every layer but `solve` and `what_if`.
//!
//! | module | |
//! |---|---|
//! | `strategy` | the strategies for limits on memory, in order |
//! | [`constrained`] | plans whose devices follow memory-saving schedules |
//! | [`offload`] | a schedule that keeps tensors on another device, as a plan of both |

pub mod constrained;
pub mod offload;
pub(crate) mod strategy;
