//! `edgecut export`: a model or a plan for other tools.

mod onnx_file;
mod parts;

use edgecut_session::{Model, ModelOptions, file_kind as kind, input::resolve, model::contents::Contents, plan_file};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use edgecut_session::error::Message;

use onnx_file::write_model;
use parts::{Parts, Runtime};

use crate::{
    Failure, Outcome,
    format::print_all,
    model::{self, ModelArguments},
    source_file as file,
    stdout::print_line,
};
use edgecut_graph::{Graph, OperatorId, Origin, TensorId};
use edgecut_onnx::{ExportOptions, export};
use edgecut_plan::{Plan, schedule::apply_schedules, split::divided};
use edgecut_relay::{
    Params,
    print::{parameter_names, print_graph},
};
use edgecut_report::{
    dot::dot,
    modules::{Source, modules},
};

/// Write a model as ONNX, as Relay text, for Graphviz or as JSON; or a plan as ONNX models (also for Ray Serve or Triton) or Relay
/// modules, one for each device's stage.
#[derive(clap::Args)]
pub struct Export {
    /// A model, or a plan that `edgecut plan` wrote
    #[command(flatten)]
    input: ModelArguments,

    /// What to write
    #[arg(long, value_enum)]
    format: Format,

    /// The file to write, or for a plan's models or modules the folder; else stdout
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Also write a .params file for each Relay module
    ///
    /// Contents are from --params, and what that lacks as `edgecut run` generates it, by the names in the module.
    #[arg(long, help_heading = "Weights")]
    with_params: bool,

    /// Write the weights of ONNX models to a file next to each, as models of 2 GiB and more always have them
    #[arg(long, help_heading = "Weights")]
    external_data: bool,

    /// Leave the weights of an ONNX model out: they become inputs that are generated from their names
    ///
    /// The file lists them in its metadata, key `seeded_parameters`, one name a line.
    #[arg(long, conflicts_with_all = ["params", "external_data"])]
    seeded_weights: bool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Format {
    /// A model for ONNX Runtime, weights inside; a plan becomes a folder of models with a manifest and a runner
    Onnx,
    /// A plan as an application of Ray Serve: its ONNX models, a manifest and `ray_serve.py`
    Ray,
    /// A plan as model repositories of NVIDIA Triton, a folder for each server
    Triton,
    /// Relay text, which TVM reads but for operators that it lacks (such as `nn.lstm` and `qnn.matmul`); a plan becomes a folder of modules with a manifest
    Relay,
    /// The DOT language of Graphviz; a plan's devices have different colours
    Dot,
    /// The graph as edgecut has it
    Json,
}

impl Export {
    pub fn run(self) -> Outcome {
        let bytes = file::read(&self.input.model)?;
        let is_plan = kind::is_json_object(&bytes);
        if self.with_params && (self.format != Format::Relay || self.output.is_none()) {
            let what = "--with-params writes a file next to the Relay module: give --format relay and --output";
            return Err(Failure::BadInput(Message::from(what)));
        }
        let is_onnx = matches!(self.format, Format::Onnx | Format::Ray | Format::Triton);
        if self.external_data && !is_onnx {
            return Err(Failure::BadInput(Message::from("--external-data is for --format onnx, ray and triton")));
        }
        if self.seeded_weights && (self.format != Format::Onnx || is_plan) {
            return Err(Failure::BadInput(Message::from("--seeded-weights is for a model as --format onnx")));
        }
        if !is_plan && matches!(self.format, Format::Ray | Format::Triton) {
            let what =
                "--format ray and triton are for a plan, as `edgecut plan` writes it: a model alone is --format onnx";
            return Err(Failure::BadInput(Message::from(what)));
        }
        self.check_output(is_plan)?;
        let options = self.input.flags.options();
        if !is_plan {
            let model = match self.format {
                Format::Onnx => model::open(&self.input.model, &ModelOptions { keep_defaults: true, ..options })?,
                _ => model::open(&self.input.model, &options)?,
            };
            let graph = &model.import.graph;
            if self.format == Format::Onnx {
                return self.write_onnx(&model);
            }
            self.write(&self.text(graph, &|_| None)?)?;
            return match &self.output {
                Some(path) if self.with_params => {
                    let named = parameter_names(graph).into_iter().filter(|(id, _)| is_parameter(graph, *id));
                    write_params(path, named, &model.contents(graph)?)
                }
                _ => Ok(()),
            };
        }
        let plan = plan_file::select_one(&self.input.model, &bytes, &options)?;
        let model = self.planned(&plan)?;
        let graph = &model.import.graph;
        match self.format {
            Format::Relay => return self.write_modules(&plan, &model),
            Format::Onnx => return self.parts(Runtime::Onnx).write(&plan, &model),
            Format::Ray => return self.parts(Runtime::Ray).write(&plan, &model),
            Format::Triton => return self.parts(Runtime::Triton).write(&plan, &model),
            Format::Dot | Format::Json => {}
        }
        let place = |operator: OperatorId| {
            let group = plan.groups.iter().find(|group| group.operators.contains(&operator))?;
            let device = group.device.0 as usize;
            Some((device, plan.device_name(group.device)?.to_string()))
        };
        self.write(&self.text(graph, &place)?)
    }

    /// Finds out whether the output can be written. Of a plan, models and modules go into a folder.
    fn check_output(&self, is_plan: bool) -> Outcome {
        let Some(path) = &self.output else { return Ok(()) };
        if is_plan && !matches!(self.format, Format::Dot | Format::Json) {
            return file::check_folder("--output", path);
        }
        file::check_writable(path)?;
        if (self.external_data || self.with_params) && !file::is_file(path) {
            let what = format!("--output {}: another file goes next to it: name a file", path.display());
            return Err(Failure::BadInput(Message::from(what)));
        }
        Ok(())
    }

    fn text(&self, graph: &Graph, place: &dyn Fn(OperatorId) -> Option<(usize, String)>) -> Result<String, Failure> {
        match self.format {
            Format::Relay => Ok(print_graph(graph)),
            Format::Onnx | Format::Ray | Format::Triton => {
                Err(Failure::BadInput(Message::from("ONNX is not text: give its file with --output")))
            }
            Format::Dot => Ok(dot(graph, place)),
            Format::Json => serde_json::to_string_pretty(graph).map(|text| text + "\n").map_err(Failure::failed),
        }
    }

    fn write(&self, text: &str) -> Outcome {
        match &self.output {
            Some(path) => file::write(path, text.as_bytes()),
            None => print_all(text.as_bytes()),
        }
    }

    fn parts(&self, runtime: Runtime) -> Parts<'_> {
        Parts { folder: self.output.as_deref(), external_data: self.external_data, runtime }
    }

    fn write_modules(&self, plan: &Plan, model: &Model) -> Outcome {
        let graph = &model.import.graph;
        let Some(folder) = &self.output else {
            return Err(Failure::BadInput(Message::from(
                "a plan becomes several files: give their folder with --output",
            )));
        };
        let export = modules(plan, graph).map_err(Failure::bad_input)?;
        file::create_folder(folder)?;
        for (name, text) in &export.modules {
            file::write(&folder.join(name), text.as_bytes())?;
        }
        if self.with_params {
            let contents = model.contents(graph)?;
            let by_name: HashMap<&str, TensorId> =
                graph.tensors().map(|(id, tensor)| (tensor.name.as_str(), id)).collect();
            for module in &export.manifest.modules {
                let named = module.inputs.iter().filter_map(|input| match &input.from {
                    Source::Parameter(name) => Some((*by_name.get(name.as_str())?, input.name.clone())),
                    _ => None,
                });
                write_params(&folder.join(&module.file), named, &contents)?;
            }
        }
        let manifest = serde_json::to_string_pretty(&export.manifest).map_err(Failure::failed)? + "\n";
        file::write(&folder.join("manifest.json"), manifest.as_bytes())?;
        let count = export.modules.len();
        let modules = if count == 1 { "module" } else { "modules" };
        print_line!("{count} {modules} and manifest.json in {}", folder.display());
        Ok(())
    }

    fn write_onnx(&self, model: &Model) -> Outcome {
        let (graph, contents) = (&model.import.graph, model.contents(&model.import.graph)?);
        let Some(path) = &self.output else {
            return Err(Failure::BadInput(Message::from("ONNX is not text: give its file with --output")));
        };
        let content = |id: TensorId| match self.seeded_weights {
            true => Ok(None),
            false => contents.of(id).map(Some).map_err(|error| error.to_string()),
        };
        let options = ExportOptions { content: &content, interface: model.interface.as_ref() };
        let exported = export(graph, &options).map_err(Failure::bad_input)?;
        let (operators, composed) = (graph.operators().len(), exported.compositions.len());
        print_line!("{}: {operators} operators, {composed} of them as compositions of several", path.display());
        write_model(&exported, path, self.external_data)
    }

    /// The model that `plan` was made for, which must not have changed since, split as the plan says.
    fn planned(&self, plan: &Plan) -> Result<Model, Failure> {
        let path = &self.input.model;
        let options = self.input.flags.options().for_plan(path, &plan.model);
        let mut model = model::open(&resolve(path, &plan.model.path), &options)?;
        if model.import.hash != plan.model.blake3 {
            let what = format!("{} is not the file that was planned: make the plan again", plan.model.path);
            return Err(Failure::BadInput(Message::from(what)));
        }
        if !plan.splits.is_empty() || !plan.schedules.is_empty() {
            let split = divided(&model.import.graph, &plan.splits).map_err(Failure::bad_input)?;
            model.import.graph = apply_schedules(&split, &plan.schedules).map_err(Failure::bad_input)?.graph;
        }
        Ok(model)
    }
}

fn is_parameter(graph: &Graph, id: TensorId) -> bool {
    matches!(graph.tensor(id).origin, Origin::Parameter)
}

/// Writes the contents of tensors, by the names that the module at `path` has for them, to a file next to it.
fn write_params(path: &Path, named: impl Iterator<Item = (TensorId, String)>, contents: &Contents<'_>) -> Outcome {
    let content = |(id, name): (TensorId, String)| Ok((name, contents.of(id).map_err(Failure::bad_input)?));
    let params: Params = named.map(content).collect::<Result<_, Failure>>()?;
    file::write(&path.with_extension("params"), &params.write())
}
