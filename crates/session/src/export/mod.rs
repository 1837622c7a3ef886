//! Exports: a model or a plan as files for other tools.
//!
//! | module | what it makes |
//! |---|---|
//! | [`file`] | the files of an export, and how they are written |
//! | `model` | files of a model: ONNX, Relay text |
//! | `parts` | a plan as ONNX models, one for each device's stage |
//! | `modules` | a plan as Relay modules |

pub mod file;
mod model;
mod modules;
mod parts;

use std::path::{Path, PathBuf};

use edgecut_graph::{Graph, OperatorId};
use edgecut_plan::{Plan, schedule::apply_schedules, split::divided};
use edgecut_relay::print::print_graph;
use edgecut_report::dot::dot;
use serde::Deserialize;

use crate::{Error, Events, Model, ModelOptions, file_kind as kind, input, output, plan_file};
use file::{Content, ExportedFile};
use parts::Runtime;

/// What is written, and where.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportOptions {
    pub format: ExportFormat,
    /// The file, or the folder of several files. Text can go without one: see [`Export::text`].
    pub output: Option<PathBuf>,
    /// Also write the parameters of each Relay module.
    pub with_params: bool,
    /// Write the weights of ONNX models to files of their own, as models of 2 GiB and more always have them.
    pub external_data: bool,
    /// Leave the weights of an ONNX model out: they become inputs that are generated from their names.
    pub seeded_weights: bool,
}

/// A format of other tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportFormat {
    #[default]
    Onnx,
    /// ONNX models of a plan as an application of Ray Serve.
    Ray,
    /// ONNX models of a plan as model repositories of NVIDIA Triton.
    Triton,
    Relay,
    /// Graphviz.
    Dot,
    Json,
}

impl ExportFormat {
    fn is_onnx(self) -> bool {
        matches!(self, ExportFormat::Onnx | ExportFormat::Ray | ExportFormat::Triton)
    }

    /// Whether a plan in this format is a folder of files.
    fn has_folder(self) -> bool {
        !matches!(self, ExportFormat::Dot | ExportFormat::Json)
    }
}

/// The files of an export, in the order in which they are written.
#[derive(Debug)]
pub struct Export {
    pub files: Vec<ExportedFile>,
    /// Text for stdout, if there is no output file.
    pub text: Option<String>,
    /// What was exported, by lines.
    pub summary: Vec<String>,
}

/// Exports the model or the plan at `path`. Nothing is written: see [`Export::write`].
///
/// # Errors
/// If the model cannot be read, is not the one that was planned, or cannot be expressed in the format, or the options
/// do not fit it or the output.
pub fn export(path: &Path, model: &ModelOptions, options: &ExportOptions, events: &Events) -> Result<Export, Error> {
    let bytes = input::read(path)?;
    let is_plan = kind::is_json_object(&bytes);
    check(options, is_plan)?;
    if is_plan {
        let plan = plan_file::select_one(path, &bytes, model)?;
        return of_plan(&plan, &planned(path, &plan, model, events)?, options);
    }
    drop(bytes);
    let model = ModelOptions { keep_defaults: options.format == ExportFormat::Onnx, ..model.clone() };
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
        return bad("option `external_data` is for option `format=onnx`, ray and triton");
    }
    if options.seeded_weights && (format != ExportFormat::Onnx || is_plan) {
        return bad("option `seeded_weights` is for a model as option `format=onnx`");
    }
    if !is_plan && matches!(format, ExportFormat::Ray | ExportFormat::Triton) {
        return bad(
            "option `format=ray` and triton are for a plan, as `edgecut plan` writes it: a model alone is option `format=onnx`",
        );
    }
    let Some(path) = &options.output else { return Ok(()) };
    if is_plan && format.has_folder() {
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
    if options.format == ExportFormat::Onnx {
        return model::onnx(model, options);
    }
    let mut export = text(model.graph(), options, &|_| None)?;
    if let Some(path) = options.output.as_deref().filter(|_| options.with_params) {
        export.files.push(model::params(model, path)?);
    }
    Ok(export)
}

fn of_plan(plan: &Plan, model: &Model, options: &ExportOptions) -> Result<Export, Error> {
    match options.format {
        ExportFormat::Relay => return modules::export(plan, model, options),
        ExportFormat::Onnx => return parts::export(plan, model, options, Runtime::Onnx),
        ExportFormat::Ray => return parts::export(plan, model, options, Runtime::Ray),
        ExportFormat::Triton => return parts::export(plan, model, options, Runtime::Triton),
        ExportFormat::Dot | ExportFormat::Json => {}
    }
    let place = |operator: OperatorId| {
        let group = plan.groups.iter().find(|group| group.operators.contains(&operator))?;
        Some((group.device.0 as usize, plan.device_name(group.device)?.to_string()))
    };
    text(model.graph(), options, &place)
}

/// The graph as text. `place` returns the device of an operator, by number and name.
fn text(
    graph: &Graph,
    options: &ExportOptions,
    place: &dyn Fn(OperatorId) -> Option<(usize, String)>,
) -> Result<Export, Error> {
    let text = match options.format {
        ExportFormat::Relay => print_graph(graph),
        ExportFormat::Dot => dot(graph, place),
        ExportFormat::Json => serde_json::to_string_pretty(graph).map_err(Error::failed)? + "\n",
        ExportFormat::Onnx | ExportFormat::Ray | ExportFormat::Triton => return Err(not_text()),
    };
    let (files, text) = match &options.output {
        Some(path) => (vec![ExportedFile::new(path, Content::Text(text))], None),
        None => (Vec::new(), Some(text)),
    };
    Ok(Export { files, text, summary: Vec::new() })
}

fn not_text() -> Error {
    Error::BadInput("ONNX is not text: give its file with option `output`".into())
}

/// The folder of a plan's files.
fn folder(options: &ExportOptions) -> Result<&Path, Error> {
    let what = "a plan becomes several files: give their folder with option `output`";
    options.output.as_deref().ok_or_else(|| Error::BadInput(what.into()))
}

/// The model that `plan`, the file at `path`, was made for, with the plan's splits and schedules.
fn planned(path: &Path, plan: &Plan, options: &ModelOptions, events: &Events) -> Result<Model, Error> {
    let options = options.for_plan(path, &plan.model);
    let mut model = Model::open(input::resolve(path, &plan.model.path), &options)?;
    events.notices(&model.notices);
    if model.import.hash != plan.model.blake3 {
        let what = format!("{} is not the file that was planned: make the plan again", plan.model.path);
        return Err(Error::BadInput(what.into()));
    }
    if !plan.splits.is_empty() || !plan.schedules.is_empty() {
        let split = divided(&model.import.graph, &plan.splits).map_err(Error::bad_input)?;
        model.import.graph = apply_schedules(&split, &plan.schedules).map_err(Error::bad_input)?.graph;
    }
    Ok(model)
}
