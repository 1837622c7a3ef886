//! Runs: of a plan on the agents of its cluster, or of a whole model on this machine.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | options of a run |
//! | [`planned`] | what a plan file names: the plan for the given inputs, its model, its cluster |
//! | [`execution`] | one plan: deploy, execute, compare with one device |
//! | [`deployed`] | one plan that stays loaded and computes inputs as they come |
//! | `failover`, `replan` | whether interrupted runs continue; a plan for the servers that are left |
//! | [`whole_model`] | a whole model on one device |
//! | [`binding`] | selection of a binding by the shapes of the inputs |
//! | [`results_file`] | the file to which results of runs are appended |
//! | `progress` | progress of a run |

pub mod binding;
pub mod deployed;
pub mod execution;
mod failover;
pub mod options;
pub mod planned;
mod progress;
mod replan;
pub mod results_file;
pub mod whole_model;
