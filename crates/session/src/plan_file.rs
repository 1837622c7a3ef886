//! Plan files: selection among the plans for several bindings, and writing.

use std::path::{Path, PathBuf};

use edgecut_onnx::UnknownDim;
use edgecut_ops::passes::bindings::Binding;
use edgecut_plan::{Plan, PlanSet, file::PlanFileError};

use crate::{Error, ModelOptions, error::Message, file_kind as kind, input as file, output};

/// The plans in the file at `path`, whose content is `text`. If there are several, only those whose bindings have the
/// sizes in `options`.
///
/// # Errors
/// If the file is not a plan, or has no plan with such sizes.
pub(crate) fn select(path: &Path, text: &[u8], options: &ModelOptions) -> Result<PlanSet, Error> {
    let failure = |error| kind::plan_error(path, text, error);
    let plans = PlanSet::from_json(text).map_err(failure)?;
    let wanted = options.bindings()?;
    // A single plan may be used with other sizes. Reading the model checks them.
    if wanted.len() == 1 && (plans.plans().len() == 1 || options.bind_dim.is_empty()) {
        return Ok(plans);
    }
    plans.chosen(|binding| wanted.iter().any(|wanted| binding.includes(wanted))).map_err(failure)
}

/// The single plan that [`select`] returns.
///
/// # Errors
/// As of [`select`], and if there are several plans.
pub(crate) fn select_one(path: &Path, text: &[u8], options: &ModelOptions) -> Result<Plan, Error> {
    let plans = select(path, text, options)?;
    let example = plans.plans().first().map_or(String::new(), |plan| UnknownDim::options_of(&plan.model.bind_dims));
    plans.only().map_err(|error| match error {
        PlanFileError::Several { .. } => Error::BadInput(Message::from(format!(
            "{}: {error}; choose one of them, such as {example}",
            path.display()
        ))),
        error => kind::plan_error(path, text, error),
    })
}

/// The plan for `binding` in the file at `path`. If the file has a single plan, that plan for any binding.
///
/// # Errors
/// If the file cannot be read or has no such plan.
pub(crate) fn for_binding(path: &Path, binding: &Binding) -> Result<Plan, Error> {
    let text = file::read(path)?;
    let failure = |error| kind::plan_error(path, &text, error);
    let plans = PlanSet::from_json(&text).map_err(failure)?;
    if plans.plans().len() == 1 {
        return plans.only().map_err(failure);
    }
    let is_same = |other: &Binding| other.to_string() == binding.to_string();
    plans.chosen(is_same).and_then(PlanSet::only).map_err(failure)
}

/// The two forms of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Csv,
}

/// The files for a plan at `path`: JSON and CSV. The second file has the same name with its own extension. A stream
/// gets only one of them.
fn files(path: &Path) -> Vec<(Form, PathBuf)> {
    let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let (form, other, extension) =
        if is_csv { (Form::Csv, Form::Json, "json") } else { (Form::Json, Form::Csv, "csv") };
    let mut files = vec![(form, path.to_path_buf())];
    if output::is_file(path) {
        files.push((other, path.with_extension(extension)));
    }
    files
}

/// The paths that a plan at `path` is written to.
pub fn paths(path: &Path) -> Vec<PathBuf> {
    files(path).into_iter().map(|(_, path)| path).collect()
}

/// The files for `plans` at `path`, with their contents: JSON, and rows as CSV.
///
/// # Errors
/// If a format cannot represent a value.
pub fn contents(path: &Path, plans: &PlanSet) -> Result<Vec<(PathBuf, String)>, Error> {
    let content = |(form, path)| {
        let text = match form {
            Form::Json => plans.to_json().map_err(Error::failed)?,
            Form::Csv => plans.to_csv().map_err(Error::failed)?,
        };
        Ok((path, text))
    };
    files(path).into_iter().map(content).collect()
}

/// Writes `plan` as JSON and its rows as CSV. `path` names one of the two files; the other one has the same name with
/// its own extension.
///
/// # Errors
/// If a file cannot be written.
pub fn save(path: &Path, plan: &Plan) -> Result<(), Error> {
    let files = contents(path, &PlanSet::from(plan.clone()))?;
    files.into_iter().try_for_each(|(path, text)| output::write(&path, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_csv_never_share_a_file() {
        for (output, json, csv) in [
            ("plan.json", "plan.json", "plan.csv"),
            ("x.csv", "x.json", "x.csv"),
            ("x.CSV", "x.json", "x.CSV"),
            ("d.csv/plan", "d.csv/plan", "d.csv/plan.csv"),
        ] {
            let mut both = files(Path::new(output));
            both.sort_by_key(|(form, _)| *form == Form::Csv);
            assert_eq!(both, [(Form::Json, json.into()), (Form::Csv, csv.into())], "{output}");
        }
        assert_eq!(files(Path::new("-")), [(Form::Json, "-".into())]);
    }
}
