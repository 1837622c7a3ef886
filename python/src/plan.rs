//! Plans: as JSON, which the package's own Python makes classes of, and as a table.

use std::path::PathBuf;

use edgecut_cli::calls;
use edgecut_plan::{Plan, file::PlanFileError, table};
use pyo3::prelude::*;

use crate::{
    columns::{Columns, word},
    errors::{bug, exception},
    table::Table,
    work::work,
};

/// The plan that the flags of `edgecut plan` ask for, as JSON.
#[pyfunction]
pub fn plan(py: Python<'_>, flags: Vec<String>, progress: Option<Py<PyAny>>) -> PyResult<String> {
    work(py, progress, move || calls::plan(&flags))?.to_json().map_err(bug)
}

/// Checks that a text is a plan.
#[pyfunction]
pub fn check_plan(py: Python<'_>, text: &[u8]) -> PyResult<()> {
    read(py, text).map(drop)
}

/// The rows of `plan.csv`.
#[pyfunction]
pub fn plan_table(py: Python<'_>, text: &[u8]) -> PyResult<Table> {
    let rows = table::rows(&read(py, text)?);
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
pub fn write_plan(py: Python<'_>, path: PathBuf, text: String, progress: Option<Py<PyAny>>) -> PyResult<()> {
    work(py, progress, move || calls::write_plan(&path, &text))
}

fn read(py: Python<'_>, text: &[u8]) -> PyResult<Plan> {
    let bad = |error: PlanFileError| exception(py, &edgecut_cli::Failure::bad_input(error));
    Plan::from_json(text).map_err(bad)
}
