//! Options of an export.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Error;

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
    /// Write a plan as one ONNX file with shardings of its operators (IR 11).
    pub sharding: bool,
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
    /// The ONNX model of a plan with annotations for ONNX Runtime's own placement.
    Ort,
    /// A script that runs a decoder in llama.cpp, distributed as in a plan.
    LlamaCpp,
    Relay,
    /// Graphviz.
    Dot,
    Json,
}

impl ExportOptions {
    /// The file of an ONNX model.
    pub(super) fn onnx_file(&self) -> Result<&Path, Error> {
        let what = "ONNX is not text: give its file with option `output`";
        self.output.as_deref().ok_or_else(|| Error::BadInput(what.into()))
    }

    /// The folder of a plan's files.
    pub(super) fn folder(&self) -> Result<&Path, Error> {
        let what = "a plan becomes several files: give their folder with option `output`";
        self.output.as_deref().ok_or_else(|| Error::BadInput(what.into()))
    }
}

impl ExportFormat {
    pub(super) fn is_onnx(self) -> bool {
        matches!(self, ExportFormat::Onnx | ExportFormat::Ray | ExportFormat::Triton | ExportFormat::Ort)
    }

    /// Whether it is a form of plans alone.
    pub(super) fn needs_plan(self) -> bool {
        matches!(self, ExportFormat::Ray | ExportFormat::Triton | ExportFormat::Ort | ExportFormat::LlamaCpp)
    }

    /// Whether a plan in this format is a folder of files.
    pub(super) fn has_folder(self) -> bool {
        !matches!(self, ExportFormat::Dot | ExportFormat::Json | ExportFormat::LlamaCpp)
    }
}
