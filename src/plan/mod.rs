//! `edgecut plan`: where each group of operators runs, in which order, and what that costs.

mod agents;
mod flags;
mod moved;
mod output;
mod print;
mod progress;
mod recorded;

use std::path::Path;

pub use flags::Plan;

use crate::{Outcome, ineffective, profile_source::is_dump, source_file};

impl Plan {
    pub fn run(self) -> Outcome {
        if self.has_pilot_runs() && (self.pareto || self.estimate) {
            let what = match self.pareto {
                true => "--pareto: the plans of a front are not run",
                false => "--estimate: then nothing is run",
            };
            return ineffective::refuse(&[("--rehearse", true)], what);
        }
        if !self.pareto {
            source_file::check_place(self.output.as_deref().unwrap_or(Path::new(output::DEFAULT_OUTPUT)))?;
        }
        match is_dump(&self.model) || recorded::is_given(&self) {
            true => recorded::run(&self, &self.model),
            false => agents::run(&self),
        }
    }
}
