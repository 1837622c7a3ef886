//! The flags of every verb that takes a model, and how the model is read.

use std::path::PathBuf;

use super::{Failure, contents::Given};
use crate::{
    engine::{Engine, EngineError},
    graph::{Graph, TensorData},
    ops::retype::BindDim,
    relay::{self, ExternalCalls, Import, ImportOptions, Mode, Params},
};

/// A model and how to read it.
#[derive(clap::Args, Debug, Clone)]
pub struct ModelArguments {
    /// Relay text, as TVM's `mod.astext()` prints it
    pub model: PathBuf,

    #[command(flatten)]
    pub flags: ModelFlags,
}

/// How a model is read.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ModelFlags {
    /// Content of the parameters, as `relay.save_param_dict` writes it
    #[arg(long, value_name = "FILE")]
    pub params: Option<PathBuf>,

    /// Size of unknown dimensions: `8` for all of them, `data:0=8` for the first one of %data
    #[arg(long, value_name = "[NAME:AXIS=]SIZE")]
    pub bind_dim: Vec<BindDim>,
}

/// A model that was read, with the content of its parameters as far as a file gave it.
pub struct Model {
    pub import: Import,
    pub params: Params,
}

impl ModelArguments {
    /// The model's name: its file's, without folders and extension.
    pub fn stem(&self) -> String {
        self.model.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Reads the model and its parameters, calls of external functions inlined.
    pub fn load(&self) -> Result<Model, Failure> {
        self.load_as(Mode::Tolerant, ExternalCalls::Inline)
    }

    /// Reads the model to be run by `engine`: branches that depend on inputs are taken as the `given` ones select.
    pub fn load_for(&self, engine: &dyn Engine, given: &Given) -> Result<Model, Failure> {
        self.read(Mode::Tolerant, ExternalCalls::Inline, (!given.is_empty()).then_some((engine, given)))
    }

    pub fn load_as(&self, mode: Mode, external: ExternalCalls) -> Result<Model, Failure> {
        self.read(mode, external, None)
    }

    fn read(
        &self,
        mode: Mode,
        external: ExternalCalls,
        branches: Option<(&dyn Engine, &Given)>,
    ) -> Result<Model, Failure> {
        let name = self.model.display().to_string();
        let bytes = std::fs::read(&self.model).map_err(|error| Failure::unreadable(&name, &error))?;
        let flags = &self.flags;
        let params = match &flags.params {
            Some(path) => Params::open(path).map_err(Failure::import)?,
            None => Params::default(),
        };
        let bind_dims = flags.bind_dim.clone();
        let evaluate = branches.map(|(engine, given)| {
            let params = &params;
            move |graph: &Graph| evaluate(engine, graph, given, params)
        });
        let options = ImportOptions {
            mode,
            params: flags.params.is_some().then_some(&params),
            bind_dims,
            external,
            evaluate: evaluate.as_ref().map(|evaluate| evaluate as &relay::Evaluate<'_>),
        };
        let import = relay::import(&name, &bytes, &options).map_err(Failure::import)?;
        Ok(Model { import, params })
    }
}

/// The output of `graph`, all of whose inputs must be given.
fn evaluate(engine: &dyn Engine, graph: &Graph, given: &Given, params: &Params) -> Result<TensorData, String> {
    let content = |id| {
        let name = &graph.tensor(id).name;
        let data = given.get(name).or_else(|| params.get(name));
        data.cloned().ok_or_else(|| {
            EngineError::Other(format!("nothing gives the content of `%{name}`; --inputs can, as an array `in_{name}`"))
        })
    };
    let outputs = engine.evaluate(graph, &content).map_err(|error| error.to_string())?;
    outputs.into_iter().next().ok_or_else(|| "it has no output".to_string())
}
