//! Runs: of a plan on the agents of its cluster, or of a whole model on this machine.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | options of a run |
//! | [`planned`] | what a plan file names: the plan for the given inputs, its model, its cluster |
//! | [`execution`] | one plan: deploy, execute, compare with one device |
//! | [`deployed`] | one plan that stays loaded and computes inputs as they come |
//! | `failover`, `replan` | whether interrupted runs continue; a plan for the servers that are left |
//! | [`generate`](mod@generate), [`generation`] | generation of tokens by a decoder, also after an agent is lost; its result |
//! | `sequence`, `sequences` | the tokens so far; several sequences at a time |
//! | `steps`, `sampling` | what computes the steps of a decoder; the choice of a token |
//! | `check_tokens`, `token_check` | comparison of a plan's tokens with those of one device: of all sequences, of one |
//! | `padding_check` | check that padding does not change a decoder's logits |
//! | [`whole_model`] | a whole model on one device |
//! | [`binding`] | selection of a binding by the shapes of the inputs |
//! | [`results_file`] | the file to which results of runs are appended |
//! | `progress` | progress of a run |
//!
//! Execution on agents:
//!
//! | module | what it does |
//! |---|---|
//! | `deploy` | what each server must do |
//! | `execute`, `perform` | executing it, alone and from the deployment to the last result |
//! | `run_progress`, `error` | progress events; why a run did not complete |
//! | `loaded`, `participants` | a deployment that stays loaded and computes inputs as they come; the agents of a run |
//! | [`outputs`] | the model's outputs of a run |
//! | `schedule_bench`, [`offload`] | memory schedules of a model run here, and on agents with tensors on a neighbour |

pub mod binding;
mod check_tokens;
mod deploy;
pub mod deployed;
mod error;
mod execute;
pub mod execution;
mod failover;
pub mod generate;
pub mod generation;
mod loaded;
pub mod offload;
pub mod options;
pub mod outputs;
mod padding_check;
mod participants;
pub(crate) mod perform;
pub mod planned;
mod progress;
mod replan;
pub mod results_file;
mod run_progress;
mod sampling;
pub(crate) mod schedule_bench;
mod sequence;
mod sequences;
mod steps;
mod token_check;
pub mod whole_model;

pub use deploy::{DeployError, DeployOptions, deploy};
pub use error::RunError;
pub(crate) use execute::agents_of;
pub use execute::{ExecuteOptions, execute};
pub use run_progress::RunProgress;
