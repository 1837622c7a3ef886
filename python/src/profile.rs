//! Profiles as tables.

use std::path::PathBuf;

use edgecut_profile::ProfileRow;
use edgecut_session::{
    Model, ModelOptions, ProfileOptions, Profiles, Site, SiteOptions, option_values::read as read_options,
};
use pyo3::prelude::*;

use crate::{
    columns::{Columns, word},
    errors::bug,
    table::Table,
    work::work,
};

/// Measures what the profiles of the model at `path` lack. Returns the summaries of the devices as JSON, and the rows of all.
#[pyfunction]
pub fn profile(
    py: Python<'_>,
    path: PathBuf,
    model: String,
    site: String,
    profile: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<(String, Table)> {
    let measured = work(py, progress, move |events| {
        let (model, site): (ModelOptions, SiteOptions) = (read_options(&model)?, read_options(&site)?);
        let profile: ProfileOptions = read_options(&profile)?;
        let model = Model::open(&path, &model)?;
        events.notices(&model.notices);
        Site::open(&site, events)?.profile(&model, &profile)
    })?;
    let summaries = serde_json::to_string(&summaries(&measured)).map_err(bug)?;
    let rows = measured.devices.into_iter().flat_map(|profile| profile.rows.into_iter().chain(profile.shards));
    Ok((summaries, table(&rows.collect::<Vec<_>>())?))
}

fn summaries(measured: &Profiles) -> serde_json::Value {
    let devices = measured.devices.iter().zip(&measured.summaries).map(|(profile, summary)| {
        serde_json::json!({
            "device": profile.device.name.to_string(),
            "hardware": profile.device.hardware,
            "engine": profile.device.engine,
            "threads": profile.device.threads,
            "path": profile.path,
            "sum_us": summary.sum.time,
            "whole_us": profile.whole.map(|whole| whole.time),
            "missing": summary.missing,
            "disturbed": summary.disturbed,
            "unmeasured_shards": profile.unmeasured_shards,
            "kinds": summary.kinds,
        })
    });
    devices.collect()
}

/// The columns of a profile's CSV file.
fn table(rows: &[ProfileRow]) -> PyResult<Table> {
    let columns = Columns::of(rows)
        .text("server", |row| row.server.clone())
        .text("device", |row| row.device.clone())
        .text("hardware", |row| row.hardware.clone())
        .text("engine", |row| row.engine.clone())
        .text("engine_version", |row| row.engine_version.clone())
        .whole("threads", |row| row.threads as u64)
        .text("mode", |row| word(row.mode))
        .text("granularity", |row| word(row.granularity))
        .whole("id", |row| row.id as u64)
        .text("operators", |row| row.operators.clone())
        .text("operator", |row| row.operator.clone())
        .text("signature", |row| row.signature.as_str().to_string())
        .text("shapes", |row| row.shapes.clone())
        .text("dtype", |row| row.dtype.clone())
        .whole("flops", |row| row.flops)
        .whole("accessed_bytes", |row| row.accessed_bytes.0)
        .whole("n", |row| u64::from(row.n))
        .number("time_us_median", |row| row.time_us_median.map(|time| time.0))
        .number("time_us_mad", |row| row.time_us_mad.map(|time| time.0))
        .number("time_us_min", |row| row.time_us_min.map(|time| time.0))
        .number("time_us_p95", |row| row.time_us_p95.map(|time| time.0))
        .number("cpu_us_median", |row| row.cpu_us_median.map(|time| time.0))
        .number("gpu_us_median", |row| row.gpu_us_median.map(|time| time.0))
        .whole("workspace_bytes", |row| row.workspace_bytes.map(|bytes| bytes.0))
        .whole("output_bytes", |row| row.output_bytes.0)
        .whole("parameter_bytes", |row| row.parameter_bytes.0)
        .whole("held_bytes", |row| row.held_bytes.map(|bytes| bytes.0))
        .number("disturbed", |row| row.disturbed)
        .text("note", |row| row.note.clone())
        .whole("axis", |row| row.axis.map(|axis| axis as u64))
        .number("fraction", |row| row.fraction)
        .whole("copied_bytes", |row| row.copied_bytes.map(|bytes| bytes.0))
        .text("layer", |row| row.layer.clone())
        .text("tensors", |row| row.tensors.clone())
        .instant("measured_at", |row| row.measured_at)
        .text("governor", |row| row.governor.and_then(word))
        .number("load", |row| row.load)
        .number("energy_j", |row| row.energy_j.map(|energy| energy.0))
        .number("idle_w", |row| row.idle_w.map(|power| power.0))
        .text("energy_source", |row| row.energy_source.and_then(word));
    Table::new(columns.finish())
}
