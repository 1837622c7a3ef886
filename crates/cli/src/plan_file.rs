//! Plan files: selection among the plans for several bindings.

use std::path::Path;

use miette::Report;

use super::{Failure, kind, model::ModelFlags, source_file as file};
use edgecut_onnx::UnknownDim;
use edgecut_ops::passes::bindings::Binding;
use edgecut_plan::{Plan, PlanSet, file::PlanFileError};

/// The plans in the file at `path`, whose content is `text`. Of several plans, only those whose bindings have the sizes that
/// `flags` give.
pub fn chosen(path: &Path, text: &[u8], flags: &ModelFlags) -> Result<PlanSet, Failure> {
    let failure = |error| kind::no_plan(path, text, error);
    let plans = PlanSet::from_json(text).map_err(failure)?;
    let wanted = flags.bindings()?;
    // A single plan may be used with other sizes than it was made for: reading the model checks them.
    if wanted.len() == 1 && (plans.plans().len() == 1 || flags.bind_dim.is_empty()) {
        return Ok(plans);
    }
    plans.chosen(|binding| wanted.iter().any(|wanted| binding.includes(wanted))).map_err(failure)
}

/// The only plan that [`chosen`] leaves.
pub fn one(path: &Path, text: &[u8], flags: &ModelFlags) -> Result<Plan, Failure> {
    let plans = chosen(path, text, flags)?;
    let example = plans.plans().first().map_or(String::new(), |plan| UnknownDim::flags_of(&plan.model.bind_dims));
    plans.only().map_err(|error| match error {
        PlanFileError::Several { .. } => Failure::BadInput(Report::msg(format!(
            "{}: {error}; choose one of them, such as {example}",
            path.display()
        ))),
        error => kind::no_plan(path, text, error),
    })
}

/// The plan for `binding` in the file at `path`; if the file has a single plan, that one, whatever its binding.
pub fn of_binding(path: &Path, binding: &Binding) -> Result<Plan, Failure> {
    let text = file::read(path)?;
    let failure = |error| kind::no_plan(path, &text, error);
    let plans = PlanSet::from_json(&text).map_err(failure)?;
    if plans.plans().len() == 1 {
        return plans.only().map_err(failure);
    }
    let is_same = |other: &Binding| other.to_string() == binding.to_string();
    plans.chosen(is_same).and_then(PlanSet::only).map_err(failure)
}
