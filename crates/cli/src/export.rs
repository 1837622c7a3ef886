//! `edgecut export`: a model or a plan for other tools.

use std::path::PathBuf;

use edgecut_session::export::{ExportFormat, ExportOptions, export};

use crate::{Outcome, format::print_all, model::ModelArguments, source_file as file, stderr, stdout::print_line};

/// Write a model as ONNX, as Relay text, for Graphviz or as JSON; or a plan as ONNX models (also for Ray Serve or Triton) or Relay
/// modules, one for each device's stage, or as one ONNX file with shardings.
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

    /// Write a plan as one ONNX file: the whole model, with shardings and pipeline stages
    ///
    /// The file has IR version 11. Splits that ONNX cannot express, such as unequal shards, are in the metadata of operators.
    /// `plan --sharded` reads the file; see docs/formats.md.
    #[arg(long, conflicts_with = "seeded_weights")]
    sharding: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// A model for ONNX Runtime, weights inside; a plan becomes a folder of models with a manifest and a runner
    Onnx,
    /// A plan as an application of Ray Serve: its ONNX models, a manifest and `ray_serve.py`
    Ray,
    /// A plan as model repositories of NVIDIA Triton, a folder for each server
    Triton,
    /// A plan for ONNX Runtime's own placement on one host: the annotated model, session options, memory of its operators
    Ort,
    /// A plan of a decoder as a script that runs llama.cpp on its RPC servers
    LlamaCpp,
    /// Relay text, which TVM reads but for operators that it lacks (such as `nn.lstm` and `qnn.matmul`); a plan becomes a folder of modules with a manifest
    Relay,
    /// The DOT language of Graphviz; a plan's devices have different colours
    Dot,
    /// The graph as edgecut has it
    Json,
}

impl Export {
    pub fn run(self) -> Outcome {
        if let Some(path) = &self.output {
            file::reserve_stdout(path)?;
        }
        let options = ExportOptions {
            format: self.format.into(),
            output: self.output,
            with_params: self.with_params,
            external_data: self.external_data,
            seeded_weights: self.seeded_weights,
            sharding: self.sharding,
        };
        let export = export(&self.input.model, &self.input.flags.options(), &options, &stderr::events())?;
        export.write_with(&|path, fill| file::write_with(path, |to| fill(to)))?;
        export.summary.iter().for_each(|line| print_line!("{line}"));
        export.text.map_or(Ok(()), |text| print_all(text.as_bytes()))
    }
}

impl From<Format> for ExportFormat {
    fn from(format: Format) -> ExportFormat {
        match format {
            Format::Onnx => ExportFormat::Onnx,
            Format::Ray => ExportFormat::Ray,
            Format::Triton => ExportFormat::Triton,
            Format::Ort => ExportFormat::Ort,
            Format::LlamaCpp => ExportFormat::LlamaCpp,
            Format::Relay => ExportFormat::Relay,
            Format::Dot => ExportFormat::Dot,
            Format::Json => ExportFormat::Json,
        }
    }
}
