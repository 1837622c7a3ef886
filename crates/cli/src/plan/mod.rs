//! `edgecut plan`: where each group of operators runs, in which order, and what that costs.

mod agents;
mod flags;
mod found;
mod moved;
mod output;
mod print;
mod progress;
mod recorded;

use std::path::Path;

use edgecut_plan::{Plan as PlanFile, problem::Objective};
use miette::Report;

pub use flags::Plan;
pub use output::write;

use found::Found;

use crate::{Failure, Outcome, ineffective, profile_source::is_dump};

impl Plan {
    pub fn run(self) -> Outcome {
        self.check_effects()?;
        if !self.pareto && (self.moves.is_empty() || self.output.is_some()) {
            output::check(self.output.as_deref().unwrap_or(Path::new(output::DEFAULT_OUTPUT)))?;
        }
        self.found(|found| finish(&self, found))
    }

    /// Refuses flags without effect: pilot runs of what is not run, and an objective that no front has.
    fn check_effects(&self) -> Outcome {
        if self.pareto && self.objective == Objective::Energy {
            let what = "--pareto: a front is of latency, time between results and memory";
            return ineffective::refuse(&[("--objective energy", true)], what);
        }
        if self.has_pilot_runs() && self.estimate {
            return ineffective::refuse(&[("--rehearse", true)], "--estimate: then nothing is run");
        }
        Ok(())
    }

    /// The plan, with nothing written or printed; where `--output` says is only checked.
    pub fn make(&self) -> Result<PlanFile, Failure> {
        self.check_effects()?;
        self.output.as_deref().map_or(Ok(()), output::check)?;
        self.found(|found| match found {
            Found::Candidate { request, candidate, notes } => output::plan(self, request, candidate, notes),
            Found::Front { .. } | Found::Moves { .. } => {
                Err(Failure::BadInput(Report::msg("--pareto and --move give no plan")))
            }
        })
    }

    /// Searches, and hands what was found to `finish`.
    fn found<T>(&self, finish: impl FnOnce(Found<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        match is_dump(&self.model) || recorded::is_given(self) {
            true => recorded::run(self, &self.model, finish),
            false => agents::run(self, finish),
        }
    }
}

/// Prints what was found, then writes it to its files.
fn finish(arguments: &Plan, found: Found<'_>) -> Outcome {
    match found {
        Found::Moves { request, of } => moved::finish(arguments, request, of),
        Found::Front { request, rehearse } => output::front(arguments, request, rehearse),
        Found::Candidate { request, candidate, notes } => {
            let plan = output::plan(arguments, request, candidate, notes)?;
            print::print(arguments.format, &candidate.expanded.problem, &plan, &candidate.solution)?;
            output::write(arguments.output.as_deref().unwrap_or(Path::new(output::DEFAULT_OUTPUT)), &plan)
        }
    }
}
