//! Exports: a model or a plan as files for other tools.
//!
//! | module | what it makes |
//! |---|---|
//! | `options`, `file` | options; the files of an export, and how they are written |
//! | `model` | files of a model: ONNX, Relay text |
//! | `parts` | a plan as ONNX models, one for each device's stage |
//! | `modules` | a plan as Relay modules |
//! | `placement` | devices of whole operators |
//! | `ort` | a plan as annotations of the whole model, for ONNX Runtime's own placement |
//! | `sharding` | a plan as shardings of the whole model |
//! | `llama_cpp` | a plan of a decoder as a command of llama.cpp |

mod file;
mod llama_cpp;
mod model;
mod modules;
mod options;
mod ort;
mod parts;
mod placement;
mod sharding;

use std::path::Path;

use edgecut_graph::{Graph, OperatorId};
use edgecut_plan::{Plan, planned_graph};
use edgecut_relay::print::print_graph;
use edgecut_report::dot::dot;

use crate::{Error, Events, Model, ModelOptions, file_kind as kind, input, output, plan_file};
use file::Content;
pub use file::{Export, ExportedFile, WriteWith};
pub use options::{ExportFormat, ExportOptions};
use parts::Runtime;

/// Exports the model or the plan at `path`. Nothing is written: see [`Export::write`].
///
/// # Errors
/// If the model cannot be read, is not the one that was planned, or cannot be expressed in the format, or the options
/// do not fit it or the output.
pub fn export(path: &Path, model: &ModelOptions, options: &ExportOptions, events: &Events) -> Result<Export, Error> {
    // The folder of a decoder is a model.
    let bytes = if path.is_dir() { Vec::new() } else { input::read(path)? };
    let is_plan = kind::is_json_object(&bytes);
    check(options, is_plan)?;
    if is_plan {
        let plan = plan_file::select_one(path, &bytes, model)?;
        return of_plan(&plan, model_of(path, &plan, model, events)?, options, events);
    }
    drop(bytes);
    let model =
        ModelOptions { keep_defaults: model.keep_defaults || options.format == ExportFormat::Onnx, ..model.clone() };
    let model = Model::open(path, &model)?;
    events.notices(&model.notices);
    of_model(&model, options)
}

/// Checks the options, and that the output can be written.
fn check(options: &ExportOptions, is_plan: bool) -> Result<(), Error> {
    let bad = |what: &str| Err(Error::BadInput(what.into()));
    let format = options.format;
    if options.with_params && (format != ExportFormat::Relay || options.output.is_none()) {
        return bad(
            "option `with_params` writes a file next to the Relay module: give option `format=relay` and option `output`",
        );
    }
    if options.external_data && !format.is_onnx() {
        return bad("option `external_data` is for option `format=onnx`, ray, triton and ort");
    }
    if options.seeded_weights && (format != ExportFormat::Onnx || is_plan) {
        return bad("option `seeded_weights` is for a model as option `format=onnx`");
    }
    if options.sharding && (format != ExportFormat::Onnx || !is_plan) {
        return bad("option `sharding` is for a plan as option `format=onnx`");
    }
    if !is_plan && format.needs_plan() {
        return bad(
            "option `format=ray`, triton, ort and llama-cpp are for a plan, as `edgecut plan` writes it: a model alone is option `format=onnx`",
        );
    }
    let Some(path) = &options.output else { return Ok(()) };
    if is_plan && format.has_folder() && !options.sharding {
        return output::check_folder("output", path);
    }
    output::check_writable(path)?;
    if (options.external_data || options.with_params) && !output::is_file(path) {
        let what = format!("option `output={}`: another file goes next to it: name a file", path.display());
        return Err(Error::BadInput(what.into()));
    }
    Ok(())
}

fn of_model(model: &Model, options: &ExportOptions) -> Result<Export, Error> {
    let graph = model.graph();
    let text = match options.format {
        // The others are refused without a plan.
        ExportFormat::Onnx | ExportFormat::Ray | ExportFormat::Triton | ExportFormat::Ort | ExportFormat::LlamaCpp => {
            return model::onnx(model, options);
        }
        ExportFormat::Relay => print_graph(graph),
        ExportFormat::Dot => dot(graph, &|_| None),
        ExportFormat::Json => json(graph)?,
    };
    let mut export = of_text(text, options);
    if let Some(path) = options.output.as_deref().filter(|_| options.with_params) {
        export.files.push(model::params(model, path)?);
    }
    Ok(export)
}

/// `model` is without the plan's splits and schedules.
fn of_plan(plan: &Plan, mut model: Model, options: &ExportOptions, events: &Events) -> Result<Export, Error> {
    let is_whole = matches!(options.format, ExportFormat::Ort | ExportFormat::LlamaCpp) || options.sharding;
    if !is_whole {
        model.import.graph = planned_graph(&model.import.graph, plan).map_err(Error::bad_input)?;
    }
    let model = &model;
    let place = |operator: OperatorId| {
        let group = plan.groups.iter().find(|group| group.operators.contains(&operator))?;
        Some((group.device.0 as usize, plan.device_name(group.device)?.to_string()))
    };
    let is_graph = matches!(options.format, ExportFormat::Dot | ExportFormat::Json);
    if plan.states != plan.model.states && !is_graph && !is_whole {
        let what = "the plan splits states, such as KV caches, which this format does not support: export it with option `sharding`, as option \
                    `format=dot` or json, or plan again with option `no_split`";
        return Err(Error::BadInput(what.into()));
    }
    match options.format {
        ExportFormat::Relay => modules::export(plan, model, options),
        ExportFormat::Onnx if options.sharding => sharding::export(plan, model, options, events),
        ExportFormat::Onnx => parts::export(plan, model, options, Runtime::Onnx),
        ExportFormat::Ray => parts::export(plan, model, options, Runtime::Ray),
        ExportFormat::Triton => parts::export(plan, model, options, Runtime::Triton),
        ExportFormat::Ort => ort::export(plan, model, options, events),
        ExportFormat::LlamaCpp => llama_cpp::export(plan, model, options),
        ExportFormat::Dot => Ok(of_text(dot(model.graph(), &place), options)),
        ExportFormat::Json => Ok(of_text(json(model.graph())?, options)),
    }
}

fn json(graph: &Graph) -> Result<String, Error> {
    serde_json::to_string_pretty(graph).map(|text| text + "\n").map_err(Error::failed)
}

/// `text` as the output file, or without one.
fn of_text(text: String, options: &ExportOptions) -> Export {
    let (files, text) = match &options.output {
        Some(path) => (vec![ExportedFile::new(path, Content::Text(text))], None),
        None => (Vec::new(), Some(text)),
    };
    Export { files, text, summary: Vec::new() }
}

/// The model that `plan`, the file at `path`, was made for, without its splits and schedules.
fn model_of(path: &Path, plan: &Plan, options: &ModelOptions, events: &Events) -> Result<Model, Error> {
    let options = options.for_plan(path, &plan.model);
    let model = Model::open(input::resolve(path, &plan.model.path), &options)?;
    events.notices(&model.notices);
    if model.import.hash != plan.model.blake3 {
        let what = format!("{} is not the file that was planned: make the plan again", plan.model.path);
        return Err(Error::BadInput(what.into()));
    }
    Ok(model)
}
