//! Verbs as functions, for other programs than the command line: their options are its flags, and they return what it
//! prints.

use std::path::Path;

use clap::{Args, Command};
use miette::Report;

use crate::{Failure, Outcome, inspect::Inspect, plan::Plan, profile::Profile, run::Run};
use edgecut_graph::TensorData;
use edgecut_plan::{Plan as PlanFile, PlanSet};
use edgecut_relay::Import;

pub use crate::{
    inspect::summarise,
    profile::MeasuredProfiles,
    run::{MeasuredRun, ModelLatency},
};

/// The model that `edgecut inspect` with these flags reads.
///
/// # Errors
/// If a flag or the model is wrong.
pub fn inspect(flags: &[String]) -> Result<Import, Failure> {
    parse::<Inspect>("inspect", flags)?.load().map(|model| model.import)
}

/// What `edgecut profile` with these flags measures, for a single binding.
///
/// # Errors
/// If a flag or the model is wrong, there are several bindings, an agent fails, or the caller stops it.
pub fn profile(flags: &[String]) -> Result<MeasuredProfiles, Failure> {
    edgecut_engine::configure_heap();
    parse::<Profile>("profile", flags)?.measure()
}

/// The plan that `edgecut plan` with these flags makes, for a single binding. No file is written.
///
/// # Errors
/// If a flag or the model is wrong, there are several bindings, there is no plan, an agent fails, or the caller stops it.
pub fn plan(flags: &[String]) -> Result<PlanFile, Failure> {
    edgecut_engine::configure_heap();
    parse::<Plan>("plan", flags)?.make()
}

/// Runs the model that is the first of the flags of `edgecut run`.
///
/// # Errors
/// If a flag or the model is wrong, or the caller stops it.
pub fn run_model(flags: &[String]) -> Result<(ModelLatency, Vec<TensorData>), Failure> {
    edgecut_engine::configure_heap();
    parse::<Run>("run", flags)?.of_model()
}

/// Runs the plan that `text` is, with the flags of `edgecut run`, of which the first is the path of the plan: what the plan
/// names is looked for from there. `each` gets what was measured.
///
/// # Errors
/// If a flag, the plan or the model is wrong, an agent fails, or the caller stops it.
pub fn run_plan(flags: &[String], text: &[u8], each: impl FnMut(MeasuredRun<'_>) -> Outcome) -> Outcome {
    edgecut_engine::configure_heap();
    parse::<Run>("run", flags)?.of_plan(text, each)
}

/// Writes the plans in `text` as `edgecut plan --output` does.
///
/// # Errors
/// If it is not a plan file, or a file cannot be written.
pub fn write_plan(path: &Path, text: &str) -> Outcome {
    let plans = PlanSet::from_json(text.as_bytes()).map_err(Failure::bad_input)?;
    crate::plan::write(path, &plans)
}

fn parse<A: Args>(verb: &'static str, flags: &[String]) -> Result<A, Failure> {
    let command = A::augment_args(Command::new(verb)).no_binary_name(true).disable_help_flag(true);
    let parsed = command.try_get_matches_from(flags).and_then(|matches| A::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let text = error.to_string();
        // Without usage and the pointer to --help, which are the command line's.
        let what = text.lines().take_while(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(" ");
        Failure::BadInput(Report::msg(what.trim_start_matches("error: ").to_string()))
    })
}
