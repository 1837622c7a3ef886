//! Runs of models and plans.

use std::path::{Path, PathBuf};

use edgecut_agent::results::{file::RunResult, table};
use edgecut_graph::TensorData;
use edgecut_plan::Plan;
use edgecut_report::timeline::run::trace;
use edgecut_session::{
    Error, ModelOptions, RunOptions, SiteOptions,
    option_values::read as read_options,
    output::{check_writable, write},
    run::{
        execution::MeasuredRun,
        planned::{PlanSource, PlannedModel},
        results_file, whole_model,
    },
};
use pyo3::prelude::*;

use crate::{
    columns::{Columns, word},
    errors::bug,
    table::Table,
    tensor::Tensor,
    work::work,
};

/// What was measured of a plan: the plan as JSON, if it is not the one that was given; the result as JSON, a table, the
/// outputs.
type PlanRun = (Option<String>, String, Table, Vec<Tensor>);

/// Runs the model at `path` on this machine. Returns what was measured as JSON, and the outputs.
#[pyfunction]
pub fn run_model(
    py: Python<'_>,
    path: PathBuf,
    model: String,
    site: String,
    run: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Vec<Tensor>)> {
    let (latency, outputs) = work(py, progress, move |events| {
        let (model, site, run): (ModelOptions, SiteOptions, RunOptions) =
            (read_options(&model)?, read_options(&site)?, read_options(&run)?);
        whole_model::run_model(&path, &model, &site, &run, events)
    })?;
    Ok((serde_json::to_string(&latency).map_err(bug)?, outputs.into_iter().map(Tensor).collect()))
}

/// Where a plan, what it names and what is measured of it are.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Places {
    /// The plan's file.
    plan: PathBuf,
    /// The plan's model, if it is not where the plan says.
    model: Option<PathBuf>,
    /// Gets a trace of predicted and measured times.
    trace: Option<PathBuf>,
    /// Gets results appended.
    output: Option<PathBuf>,
}

/// Runs the plan that `text` is. Returns what was measured of it, and of the plans that were made because agents were lost.
#[pyfunction]
pub fn run_plan(
    py: Python<'_>,
    text: Vec<u8>,
    places: Places,
    model: String,
    site: String,
    run: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<PlanRun>> {
    let runs = work(py, progress, move |events| {
        let given = Plan::from_json(&text).map_err(Error::bad_input)?;
        let (model, site, run): (ModelOptions, SiteOptions, RunOptions) =
            (read_options(&model)?, read_options(&site)?, read_options(&run)?);
        places.trace.as_deref().map_or(Ok(()), check_writable)?;
        places.output.as_deref().map_or(Ok(()), results_file::check)?;
        let source = PlanSource { path: &places.plan, text: &text, model: places.model.as_deref() };
        let planned = PlannedModel::open(source, &model, &site, &run, events)?;
        let mut runs = Vec::new();
        planned.run(&run, &mut |run| {
            places.write(&run)?;
            runs.push(((*run.plan != given).then(|| run.plan.clone()), run.result, run.outputs));
            Ok(())
        })?;
        Ok(runs)
    })?;
    runs.into_iter().map(|(plan, result, outputs)| plan_run(plan, &result, outputs)).collect()
}

impl Places {
    /// Writes what was measured of one plan.
    fn write(&self, run: &MeasuredRun<'_>) -> Result<(), Error> {
        let traced = self
            .trace
            .as_deref()
            .map_or(Ok(()), |path| write(path, &trace(path, run.plan, run.graph, run.deployment, run.record)));
        let append = |path: &Path| results_file::append(path, run.result.clone(), &write);
        let appended = self.output.as_deref().map_or(Ok(()), append);
        traced.and(appended)
    }
}

fn plan_run(plan: Option<Plan>, result: &RunResult, outputs: Vec<TensorData>) -> PyResult<PlanRun> {
    let plan = plan.map(|plan| plan.to_json()).transpose().map_err(bug)?;
    let text = serde_json::to_string(result).map_err(bug)?;
    Ok((plan, text, rows(result)?, outputs.into_iter().map(Tensor).collect()))
}

/// The rows of `edgecut run --format csv`.
fn rows(result: &RunResult) -> PyResult<Table> {
    let rows = table::rows(&result.outcome);
    let columns = Columns::of(&rows)
        .text("kind", |row| word(row.kind))
        .whole("id", |row| row.id.map(u64::from))
        .text("name", |row| row.name.clone())
        .text("server", |row| row.server.clone())
        .text("device", |row| row.device.clone())
        .text("to_server", |row| row.to_server.clone())
        .text("to_device", |row| row.to_device.clone())
        .number("predicted_us", |row| row.predicted_us)
        .number("measured_us", |row| row.measured_us)
        .whole("bytes", |row| row.bytes)
        .text("part", |row| row.part.clone())
        .text("layer", |row| row.layer.clone())
        .whole("n", |row| row.n.map(|n| n as u64))
        .number("mad_us", |row| row.mad_us)
        .number("min_us", |row| row.min_us)
        .number("p95_us", |row| row.p95_us)
        .number("max_us", |row| row.max_us)
        .number("waited_us", |row| row.waited_us)
        .whole("predicted_workspace_bytes", |row| row.predicted_workspace_bytes)
        .whole("workspace_bytes", |row| row.workspace_bytes)
        .whole("predicted_load_bytes", |row| row.predicted_load_bytes)
        .whole("peak_bytes", |row| row.peak_bytes)
        .whole("predicted_arena_bytes", |row| row.predicted_arena_bytes)
        .whole("predicted_parameter_bytes", |row| row.predicted_parameter_bytes)
        .whole("parameter_bytes", |row| row.parameter_bytes)
        .whole("loading_bytes", |row| row.loading_bytes)
        .whole("memory_limit_bytes", |row| row.memory_limit_bytes)
        .text("format", |row| row.format.and_then(word))
        .whole("sent_bytes", |row| row.sent_bytes)
        .number("largest_error", |row| row.largest_error)
        .number("mean_error", |row| row.mean_error)
        .number("largest_relative_error", |row| row.largest_relative_error)
        .number("mean_relative_error", |row| row.mean_relative_error)
        .number("predicted_energy_j", |row| row.predicted_energy_j)
        .number("measured_energy_j", |row| row.measured_energy_j);
    Table::new(columns.finish())
}
