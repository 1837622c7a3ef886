//! Plan files: selection among the plans for several bindings, and how plans are written.

use std::path::{Path, PathBuf};

use edgecut_onnx::UnknownDim;
use edgecut_ops::passes::bindings::Binding;
use edgecut_plan::{Plan, PlanSet, file::PlanFileError};

use crate::{Error, ModelOptions, error::Message, file_kind as kind, input as file, output};

/// The plans in the file at `path`, whose content is `text`. Of several plans, only those whose bindings have the sizes that
/// `options` give.
///
/// # Errors
/// If it is no plan file, or no plan has such sizes.
pub fn chosen(path: &Path, text: &[u8], options: &ModelOptions) -> Result<PlanSet, Error> {
    let failure = |error| kind::no_plan(path, text, error);
    let plans = PlanSet::from_json(text).map_err(failure)?;
    let wanted = options.bindings()?;
    // A single plan may be used with other sizes than it was made for: reading the model checks them.
    if wanted.len() == 1 && (plans.plans().len() == 1 || options.bind_dim.is_empty()) {
        return Ok(plans);
    }
    plans.chosen(|binding| wanted.iter().any(|wanted| binding.includes(wanted))).map_err(failure)
}

/// The only plan that [`chosen`] leaves.
///
/// # Errors
/// As [`chosen`], and if there are several.
pub fn one(path: &Path, text: &[u8], options: &ModelOptions) -> Result<Plan, Error> {
    let plans = chosen(path, text, options)?;
    let example = plans.plans().first().map_or(String::new(), |plan| UnknownDim::options_of(&plan.model.bind_dims));
    plans.only().map_err(|error| match error {
        PlanFileError::Several { .. } => Error::BadInput(Message::from(format!(
            "{}: {error}; choose one of them, such as {example}",
            path.display()
        ))),
        error => kind::no_plan(path, text, error),
    })
}

/// The plan for `binding` in the file at `path`; if the file has a single plan, that one, whatever its binding.
///
/// # Errors
/// If the file cannot be read, or has no such plan.
pub fn of_binding(path: &Path, binding: &Binding) -> Result<Plan, Error> {
    let text = file::read(path)?;
    let failure = |error| kind::no_plan(path, &text, error);
    let plans = PlanSet::from_json(&text).map_err(failure)?;
    if plans.plans().len() == 1 {
        return plans.only().map_err(failure);
    }
    let is_same = |other: &Binding| other.to_string() == binding.to_string();
    plans.chosen(is_same).and_then(PlanSet::only).map_err(failure)
}

/// A plan's two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Csv,
}

/// What a plan that goes to `path` is written to: JSON and CSV, the other one with the same name and its own extension. A
/// stream has nothing next to it, and gets one of them.
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

/// The files that a plan at `path` is written to.
pub fn places(path: &Path) -> Vec<PathBuf> {
    files(path).into_iter().map(|(_, path)| path).collect()
}

/// The files of `plans` at `path`: JSON, and their rows as CSV.
///
/// # Errors
/// If a plan has a value that the formats do not.
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

/// Writes `plan` at `path` as JSON, and its rows as CSV with the same name.
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
