//! Runs: a plan on the agents of its cluster, a whole model on this machine.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | how often to run, and what to compare |
//! | [`planned`] | what a plan file names: the plan for given inputs, its model, its cluster |
//! | [`execution`] | one plan: deploy, execute, compare with one device |
//! | [`deployed`] | one plan that stays loaded, for inputs as they come |
//! | `failover`, `replan` | what becomes of runs that are interrupted; a plan for the servers that are left |
//! | [`whole_model`] | a model on one device |
//! | [`binding`] | the choice of a binding by the shapes of the inputs |
//! | [`results_file`] | the file that runs are appended to |
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
