//! `edgecut plan`: where each group of operators runs, in which order, and what that costs.

mod flags;
mod moved;
mod output;
mod print;

use std::path::{Path, PathBuf};

use edgecut_plan::{PlanSet, problem::Objective};
use edgecut_session::{
    Events, ModelOptions, PlanOptions, Profiles, RecordedModel, Site,
    cluster::is_remote,
    error::Message,
    model::Binding,
    plan::planner::{Planned, Planner},
};

pub use flags::Plan;

use crate::{
    Failure, Outcome,
    format::{Format, print_all},
    ineffective,
    interrupt::is_interrupted,
    model,
    stderr::{self, status},
    stdout::print_line,
};

impl Plan {
    /// Whether this process computes no model: other processes do, or all was measured before.
    pub fn computes_elsewhere(&self) -> bool {
        let is_recorded = || RecordedModel::sources(&self.model, &self.profile).is_some();
        self.cluster.path().is_some_and(|path| is_remote(&path)) || is_recorded()
    }

    pub fn run(self) -> Outcome {
        self.check_effects()?;
        if !self.pareto && (self.moves.is_empty() || self.output.is_some()) {
            output::check(self.output())?;
        }
        let events = stderr::events();
        let mut options = self.flags.options_for(&self.engine);
        // A plan is for steps of one token.
        options.prompt = options.prompt.map(|_| 1);
        let bindings = options.bindings()?;
        match bindings.len() {
            1 => self.with_planner(&options, &events, |planner, options| self.finish(planner, options)),
            _ => self.run_each(&options, &bindings, &events),
        }
    }

    /// Plans several bindings with the same targets, and writes the plans into one file.
    fn run_each(&self, options: &ModelOptions, bindings: &[Binding], events: &Events) -> Outcome {
        let of_one = [("--pareto", self.pareto), ("--move", !self.moves.is_empty())];
        ineffective::refuse(&of_one, "several bindings: give one size per dimension")?;
        let mut plans = Vec::with_capacity(bindings.len());
        for binding in bindings {
            if is_interrupted() {
                return Err(stopped(binding));
            }
            status!("binding {binding}");
            let options = options.with_binding(binding, bindings);
            let plan = self.with_planner(&options, events, |planner, _| {
                let planned = planner.plan()?;
                if self.format == Format::Table {
                    print_line!("binding {binding}\n");
                    self.print(&planned)?;
                    print_line!("");
                }
                Ok(planned.plan)
            });
            plans.push(plan.map_err(|error| match error {
                Failure::Cancelled => stopped(binding),
                error => error.at(format!("binding `{binding}`")),
            })?);
        }
        let plans = PlanSet::new(plans).map_err(Failure::failed)?;
        match self.format {
            Format::Csv => print_all(plans.to_csv().map_err(Failure::failed)?.as_bytes())?,
            Format::Json => print_all(plans.to_json().map_err(Failure::failed)?.as_bytes())?,
            Format::Table => {}
        }
        output::write(self.output(), &plans)
    }

    /// Refuses flags without effect: pilot runs of what is not run, and an objective that no front has.
    fn check_effects(&self) -> Outcome {
        if self.pareto && self.objective == Objective::Energy.into() {
            let what = "--pareto: a front is of latency, time between results and memory";
            return ineffective::refuse(&[("--objective energy", true)], what);
        }
        if self.format != Format::Table {
            ineffective::refuse(&[("--explain", self.explain)], "--format csv or json: only tables explain plans")?;
        }
        if self.estimate && self.options().has_pilot_runs() {
            return ineffective::refuse(&[("--rehearse", true)], "--estimate: then nothing is run");
        }
        Ok(())
    }

    /// Where the plan goes.
    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(output::DEFAULT_OUTPUT))
    }

    /// Does `work` with the planner of these flags: for the devices of agents, or of profiles that are files.
    fn with_planner<T>(
        &self,
        model: &ModelOptions,
        events: &Events,
        work: impl FnOnce(&Planner<'_>, &PlanOptions) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut options = self.options();
        if let Some(sources) = RecordedModel::sources(&self.model, &self.profile) {
            ineffective::refuse(&self.measuring_flags(), "profiles that are files: nothing is measured or run")?;
            // Defaults of the configuration file are for agents.
            (options.estimate, options.rehearse) = (false, None);
            let cluster = self.cluster.path();
            let recorded = RecordedModel::read(&self.model, model, &sources, cluster.as_deref(), events)?;
            return work(&recorded.planner(&options)?, &options);
        }
        if options.estimate {
            // Of the configuration file: what was typed is refused.
            options.rehearse = None;
        }
        let model = model::open(&self.model, model)?;
        model.check_sizes()?;
        let site = Site::open(&self.cluster.options_with(&self.threads, &self.engine), events)?;
        let profiles = Profiles::in_folder(self.profile.first().map_or(Path::new("profiles"), PathBuf::as_path));
        work(&site.planner(&model, &profiles, &options)?, &options)
    }

    /// Prints what the planner finds, then writes it to its files.
    fn finish(&self, planner: &Planner<'_>, options: &PlanOptions) -> Outcome {
        if !self.moves.is_empty() {
            return moved::finish(self, options, planner);
        }
        if self.pareto {
            return output::front(self, planner);
        }
        let planned = planner.plan()?;
        self.print(&planned)?;
        output::write(self.output(), &PlanSet::from(planned.plan))
    }

    fn print(&self, planned: &Planned<'_>) -> Outcome {
        let Planned { plan, candidate, .. } = planned;
        print::print(self.format, &candidate.expanded.problem, plan, &candidate.solution)?;
        if self.explain { print::print_attempts(plan.objective, candidate) } else { Ok(()) }
    }
}

/// That planning was interrupted, with the first binding that has no plan.
fn stopped(binding: &Binding) -> Failure {
    let what = format!("stopped before binding `{binding}` was planned: no plan is written, profiles are kept");
    Failure::Failed(Message::from(what))
}
