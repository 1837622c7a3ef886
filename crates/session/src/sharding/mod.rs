//! Shardings of an ONNX file (IR 11) as plans, and back.
//!
//! | module | what it does |
//! |---|---|
//! | `checked` | the shardings of a model's file, checked against its tensors |
//! | `entry_operators` | operators of the graph by entry of the file |
//! | `split_spec` | the split of an operator as shardings of its tensors, and back |
//! | `summary` | counts for `inspect` |
//! | `stated_plan` | placement and splits of groups |

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
