//! Options of a run.

use std::path::PathBuf;

use serde::Deserialize;

use crate::{Error, profile::DEFAULT_FOLDER};

/// Options of a run.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunOptions {
    /// Number of timed runs. By default, 10 for a plan and 1 for a model.
    pub repeat: Option<u32>,
    /// Keep several inputs in flight and measure the time between results.
    pub throughput: bool,
    /// Whether to plan again when an agent is lost, and continue on the servers that answer. By default, only if there
    /// is a result and `repeat` or `throughput` is given.
    pub replan: Option<bool>,
    /// Folder of the profiles that the plan was made from. Replanning uses them too.
    pub profile: PathBuf,
    /// Do not compare the outputs with those of the model on this machine.
    pub no_check: bool,
    /// Pad inputs with zeros to the smallest binding that holds them, and crop the outputs.
    pub pad_inputs: Padding,
}

/// Whether inputs are padded to a binding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Padding {
    #[default]
    Never,
    /// Pad given inputs. Generated inputs have the sizes of a binding.
    WhereGiven,
    /// Like [`Padding::WhereGiven`], but a run without given inputs is an error.
    Always,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            repeat: None,
            throughput: false,
            replan: None,
            profile: PathBuf::from(DEFAULT_FOLDER),
            no_check: false,
            pad_inputs: Padding::Never,
        }
    }
}

/// Default number of timed runs of a plan.
const RUNS_OF_A_PLAN: u32 = 10;

impl RunOptions {
    /// Checks the number of runs.
    ///
    /// # Errors
    /// If no run is asked for.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.repeat {
            Some(0) => Err(Error::BadInput("option `repeat`: expected at least one run".into())),
            _ => Ok(()),
        }
    }

    /// Whether to plan again when an agent is lost. `has_results`: whether any run is finished.
    pub(super) fn replans(&self, has_results: bool) -> bool {
        self.replan.unwrap_or(has_results && (self.repeat.is_some() || self.throughput))
    }

    pub(super) fn runs_of_a_plan(&self) -> u64 {
        u64::from(self.repeat.unwrap_or(RUNS_OF_A_PLAN))
    }
}
