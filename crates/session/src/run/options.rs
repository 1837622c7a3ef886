//! How often to run, and what to compare.

use std::path::PathBuf;

use serde::Deserialize;

use crate::profile::DEFAULT_FOLDER;

/// How often to run, and what to compare.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunOptions {
    /// Number of timed runs; 10 of a plan, 1 of a model if not given.
    pub repeat: Option<u32>,
    /// Keep several inputs in flight and measure the time between results.
    pub throughput: bool,
    /// Whether to plan again when an agent is lost, for the servers that answer, and go on. If not given, where `repeat` or
    /// `throughput` is, once there is a result.
    pub replan: Option<bool>,
    /// Folder of the profiles that the plan was made of: another plan is made of them.
    pub profile: PathBuf,
    /// Do not compare the outputs with those of the model on this machine.
    pub no_check: bool,
    /// Pad inputs with zeros to the smallest binding that holds them, and crop outputs.
    pub pad_inputs: bool,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            repeat: None,
            throughput: false,
            replan: None,
            profile: PathBuf::from(DEFAULT_FOLDER),
            no_check: false,
            pad_inputs: false,
        }
    }
}

/// Runs of a plan that count unless another number is asked for.
const RUNS_OF_A_PLAN: u32 = 10;

impl RunOptions {
    /// Whether to plan again when an agent is lost, where there are results or not.
    pub(super) fn replans(&self, has_results: bool) -> bool {
        self.replan.unwrap_or(has_results && (self.repeat.is_some() || self.throughput))
    }

    pub(super) fn runs_of_a_plan(&self) -> u64 {
        u64::from(self.repeat.unwrap_or(RUNS_OF_A_PLAN))
    }
}
