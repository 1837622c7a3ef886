//! Plans: as JSON, which the package's own Python makes classes of, and as a table.

use std::path::{Path, PathBuf};

use edgecut_plan::{Plan, file::PlanFileError, table};
use edgecut_session::{
    Error, Model, ModelOptions, PlanOptions, Profiles, RecordedModel, Site, SiteOptions,
    option_values::read as read_options, plan_file, profile::DEFAULT_FOLDER,
};
use pyo3::prelude::*;

use crate::{
    columns::{Columns, word},
    errors::{bug, exception},
    table::Table,
    work::work,
};

/// A plan of the model at `path`, as JSON: for the devices of a site, with the folder of profiles that is named, or for those
/// of profiles that are files. Checks first that it could be written at `output`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "keywords of the package's own Python")]
pub fn plan(
    py: Python<'_>,
    path: PathBuf,
    model: String,
    site: String,
    plan: String,
    profiles: Vec<PathBuf>,
    output: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let made = work(py, progress, move |events| {
        let (model, site): (ModelOptions, SiteOptions) = (read_options(&model)?, read_options(&site)?);
        let plan: PlanOptions = read_options(&plan)?;
        for place in output.iter().flat_map(|path| plan_file::paths(path)) {
            edgecut_session::output::check_writable(&place)?;
        }
        if let Some(sources) = RecordedModel::sources(&path, &profiles) {
            let measuring = [("threads", site.threads.is_some()), ("engine", site.engine.is_some())];
            if let Some((option, _)) = measuring.iter().find(|(_, is_given)| *is_given) {
                let what = "has no effect with profiles that are files: nothing is measured or run";
                return Err(Error::BadInput(format!("option `{option}` {what}").into()));
            }
            return RecordedModel::read(&path, &model, &sources, site.cluster.as_deref(), events)?.plan(&plan);
        }
        let model = Model::open(&path, &model)?;
        events.notices(&model.notices);
        let profiles = Profiles::in_folder(profiles.first().map_or(Path::new(DEFAULT_FOLDER), PathBuf::as_path));
        Site::open(&site, events)?.plan(&model, &profiles, &plan)
    })?;
    made.to_json().map_err(bug)
}

/// Checks that a text is a plan.
#[pyfunction]
pub fn check_plan(py: Python<'_>, text: &[u8]) -> PyResult<()> {
    from_json(py, text).map(drop)
}

/// The rows of `plan.csv`.
#[pyfunction]
pub fn plan_table(py: Python<'_>, text: &[u8]) -> PyResult<Table> {
    let rows = table::rows(&from_json(py, text)?);
    let columns = Columns::of(&rows)
        .text("kind", |row| word(row.kind))
        .whole("id", |row| row.id.map(u64::from))
        .text("name", |row| row.name.clone())
        .text("server", |row| row.server.clone())
        .text("device", |row| row.device.clone())
        .text("to_server", |row| row.to_server.clone())
        .text("to_device", |row| row.to_device.clone())
        .number("start_us", |row| row.start_us)
        .number("time_us", |row| row.time_us)
        .whole("bytes", |row| row.bytes)
        .text("operators", |row| row.operators.clone())
        .text("source", |row| row.source.and_then(word))
        .text("part", |row| row.part.clone())
        .text("layer", |row| row.layer.clone())
        .text("format", |row| row.format.and_then(word))
        .whole("sent_bytes", |row| row.sent_bytes)
        .number("energy_j", |row| row.energy_j)
        .whole("workspace_bytes", |row| row.workspace_bytes);
    Table::new(columns.finish())
}

/// Writes `plan.json` and `plan.csv`.
#[pyfunction]
pub fn write_plan(py: Python<'_>, path: PathBuf, text: String) -> PyResult<()> {
    let save = || plan_file::save(&path, &Plan::from_json(text.as_bytes()).map_err(Error::bad_input)?);
    py.detach(save).map_err(|error| exception(py, &error))
}

fn from_json(py: Python<'_>, text: &[u8]) -> PyResult<Plan> {
    let bad = |error: PlanFileError| exception(py, &Error::bad_input(error));
    Plan::from_json(text).map_err(bad)
}
