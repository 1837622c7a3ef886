//! Options for reading a model.

use std::path::PathBuf;

use edgecut_graph::StatePair;
use edgecut_onnx::Defaults;
use edgecut_onnx::UnknownDim;
use edgecut_ops::passes::bindings::{BindSizes, Binding, bindings};
use edgecut_plan::file::ModelRef;
use edgecut_profile::ProfiledBinding;
use edgecut_relay::{ExternalCalls, ParseMode};
use serde::Deserialize;

use super::name_pattern::NamePattern;
use crate::{Error, input::resolve, option_values};

/// Options for reading a model.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelOptions {
    /// A file with the contents of parameters, as `relay.save_param_dict` writes it.
    pub params: Option<PathBuf>,
    /// Inputs that are parameters. Their contents are generated from their names.
    #[serde(deserialize_with = "option_values::list")]
    pub seed_parameters: Vec<NamePattern>,
    /// Sizes of unknown dimensions: `8`, `data:0=8`, `batch=8`.
    #[serde(deserialize_with = "option_values::list")]
    pub bind_dim: Vec<BindSizes>,
    /// An `.npz` file with contents of inputs, as arrays `in_<name>`. Other contents are generated from the names.
    pub inputs: Option<PathBuf>,
    /// The tokens that the states of a decoder have room for. By default, the context of the model, at most 2048.
    pub context: Option<u64>,
    /// The tokens of a step of a decoder: 1, the default, to generate, and more to read prompts.
    pub prompt: Option<u64>,
    /// Inputs and the outputs that they are in the next step, `INPUT=OUTPUT`, in addition to those that are known by their names.
    #[serde(deserialize_with = "option_values::list")]
    pub state: Vec<StatePair>,
    /// The ONNX Runtime library. By default, the installed one.
    pub onnxruntime: Option<PathBuf>,
    /// Accept only Relay that TVM's own parser accepts.
    pub strict: bool,
    /// What to do with calls of functions of another compiler.
    pub external: External,
    /// Guess the sizes of unknown dimensions of an ONNX model that no option gives.
    pub guess_dims: bool,
    /// Keep inputs that have a default in an ONNX model as inputs, to write the model again.
    pub keep_defaults: bool,
    /// Whether these sizes are one of several bindings. Rows of a profile then name the binding. Set by
    /// [`ModelOptions::with_binding`].
    #[serde(skip)]
    pub is_one_of_several: bool,
}

/// What to do with calls of functions of another compiler, in Relay (`Compiler="…"`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum External {
    #[default]
    Inline,
    Keep,
}

impl ModelOptions {
    /// The options for reading the model of the plan in the file `plan`. Options that are not given are those of the
    /// plan's model.
    #[must_use]
    pub(crate) fn for_plan(&self, plan: &std::path::Path, model: &ModelRef) -> ModelOptions {
        let mut options = self.clone();
        let planned = model.binding();
        if options.binding().map_or(true, |given| planned.includes(&given)) {
            options.bind_dim = model.bind_dims.iter().cloned().map(BindSizes::from).collect();
        }
        if options.seed_parameters.is_empty() {
            options.seed_parameters = model.seed_parameters.iter().filter_map(|text| text.parse().ok()).collect();
        }
        if options.state.is_empty() {
            options.state.clone_from(&model.states);
        }
        options.inputs = options.inputs.or_else(|| model.inputs.as_deref().map(|inputs| resolve(plan, inputs)));
        options
    }

    /// The bindings of unknown dimensions. Without sizes, a single empty binding.
    ///
    /// # Errors
    /// If lists of sizes differ in length, or give too many bindings.
    pub fn bindings(&self) -> Result<Vec<Binding>, Error> {
        bindings(&self.bind_dim).map_err(|error| Error::BadInput(format!("option `bind_dim`: {error}").into()))
    }

    /// The only binding.
    ///
    /// # Errors
    /// If there are several.
    pub fn binding(&self) -> Result<Binding, Error> {
        let mut all = self.bindings()?;
        let (count, named) = (all.len(), Binding::list(all.clone()));
        let first = all.swap_remove(0);
        if count == 1 {
            return Ok(first);
        }
        let what = format!(
            "option `bind_dim` gives {count} bindings ({named}), but only profile, plan and run accept several"
        );
        let advice = format!("give one size per dimension, such as {}", UnknownDim::options_of(first.dims()));
        Err(Error::BadInput(format!("{what}: {advice}").into()))
    }

    /// The same options with the sizes of `binding`, which was selected from `all`.
    #[must_use]
    pub fn with_binding(&self, binding: &Binding, all: &[Binding]) -> ModelOptions {
        let bind_dim = binding.dims().iter().cloned().map(BindSizes::from).collect();
        let is_one_of_several = self.is_one_of_several || all.len() > 1;
        ModelOptions { bind_dim, is_one_of_several, ..self.clone() }
    }

    /// The binding as part of a profile's key.
    ///
    /// # Errors
    /// If there are several.
    pub(crate) fn profiled_binding(&self) -> Result<ProfiledBinding, Error> {
        let label = self.binding()?.to_string();
        Ok(match self.is_one_of_several {
            false => ProfiledBinding::Sole(label),
            true => ProfiledBinding::OneOfSeveral(label),
        })
    }

    /// Whether the input `name` is a parameter with generated content.
    pub(super) fn is_seeded(&self, name: &str) -> bool {
        self.seed_parameters.iter().any(|pattern| pattern.is_match(name))
    }

    pub(super) fn parse_mode(&self) -> ParseMode {
        if self.strict { ParseMode::Strict } else { ParseMode::Tolerant }
    }

    pub(super) fn external_calls(&self) -> ExternalCalls {
        match self.external {
            External::Inline => ExternalCalls::Inline,
            External::Keep => ExternalCalls::Keep,
        }
    }

    pub(super) fn defaults(&self) -> Defaults {
        if self.keep_defaults { Defaults::Input } else { Defaults::Constant }
    }
}
