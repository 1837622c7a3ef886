//! Shardings that an ONNX file states (IR 11), and plans.
//!
//! | module | what it does |
//! |---|---|
//! | `checked` | the shardings of a model's file, checked against its tensors |
//! | `entry_operators` | which operators the entries of a file became |
//! | `split_spec` | the split of an operator as shardings of its tensors, and back |
//! | `summary` | figures of what a file states |
//! | `stated_plan` | what shardings say of the groups of a model |

mod checked;
mod entry_operators;
mod split_spec;
mod stated_plan;
mod summary;

pub use checked::sharded_model;
pub(crate) use entry_operators::{NamedEntry, entry_operators};
pub(crate) use split_spec::{SPLIT_KEY, Spec, StatedSplit, placement, specs};
pub use stated_plan::StatedError;
pub(crate) use stated_plan::{NamedGroups, StatedPlan, stated_plan};
pub use summary::ShardingSummary;
