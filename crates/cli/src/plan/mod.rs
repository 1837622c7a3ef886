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

use edgecut_ops::passes::bindings::Binding;
use edgecut_plan::{Plan as PlanFile, PlanSet, problem::Objective};
use miette::Report;

pub use flags::Plan;
pub use output::write;

use found::Found;

use crate::{
    Failure, Outcome,
    caller::status,
    format::{Format, print_all},
    ineffective,
    interrupt::is_interrupted,
    profile_source::is_dump,
    stdout::print_line,
};

impl Plan {
    pub fn run(self) -> Outcome {
        self.check_effects()?;
        if !self.pareto && (self.moves.is_empty() || self.output.is_some()) {
            output::check(self.output.as_deref().unwrap_or(Path::new(output::DEFAULT_OUTPUT)))?;
        }
        let bindings = self.flags.bindings()?;
        match bindings.len() {
            1 => self.found(|found| finish(&self, found)),
            _ => self.run_each(&bindings),
        }
    }

    /// Plans several bindings with the same targets, and writes the plans into one file.
    fn run_each(mut self, bindings: &[Binding]) -> Outcome {
        let of_one = [("--pareto", self.pareto), ("--move", !self.moves.is_empty())];
        ineffective::refuse(&of_one, "several bindings: give one size per dimension")?;
        let (given, mut plans) = (self.flags.clone(), Vec::with_capacity(bindings.len()));
        for binding in bindings {
            if is_interrupted() {
                let what = format!("stopped before binding `{binding}`: no plan is written, profiles are kept");
                return Err(Failure::Failed(Report::msg(what)));
            }
            status!("binding {binding}");
            self.flags = given.with_binding(binding, bindings);
            let plan = self.found(|found| {
                let Found::Candidate { request, candidate, notes } = found else { return Err(no_plan_of_front()) };
                let plan = output::plan(&self, request, candidate, notes)?;
                if self.format == Format::Table {
                    print_line!("binding {binding}\n");
                    print::print(self.format, &candidate.expanded.problem, &plan, &candidate.solution)?;
                    print_line!("");
                }
                Ok(plan)
            });
            plans.push(plan.map_err(|error| error.at(format!("binding `{binding}`")))?);
        }
        let plans = PlanSet::new(plans).map_err(Failure::failed)?;
        match self.format {
            Format::Csv => print_all(plans.to_csv().map_err(Failure::failed)?.as_bytes())?,
            Format::Json => print_all(plans.to_json().map_err(Failure::failed)?.as_bytes())?,
            Format::Table => {}
        }
        output::write(self.output.as_deref().unwrap_or(Path::new(output::DEFAULT_OUTPUT)), &plans)
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
        self.flags.binding()?;
        self.check_effects()?;
        self.output.as_deref().map_or(Ok(()), output::check)?;
        self.found(|found| match found {
            Found::Candidate { request, candidate, notes } => output::plan(self, request, candidate, notes),
            Found::Front { .. } | Found::Moves { .. } => Err(no_plan_of_front()),
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

fn no_plan_of_front() -> Failure {
    Failure::BadInput(Report::msg("--pareto and --move give no plan"))
}

/// Prints what was found, then writes it to its files.
fn finish(arguments: &Plan, found: Found<'_>) -> Outcome {
    match found {
        Found::Moves { request, of } => moved::finish(arguments, request, of),
        Found::Front { request, rehearse } => output::front(arguments, request, rehearse),
        Found::Candidate { request, candidate, notes } => {
            let plan = output::plan(arguments, request, candidate, notes)?;
            print::print(arguments.format, &candidate.expanded.problem, &plan, &candidate.solution)?;
            let path = arguments.output.as_deref().unwrap_or(Path::new(output::DEFAULT_OUTPUT));
            output::write(path, &PlanSet::from(plan))
        }
    }
}
