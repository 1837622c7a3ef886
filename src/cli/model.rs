//! The flags of every verb that takes a model, and how the model is read.

use std::path::PathBuf;

use super::Failure;
use crate::{
    ops::retype::BindDim,
    relay::{self, ExternalCalls, Import, ImportOptions, Mode, Params},
};

/// A model and how to read it.
#[derive(clap::Args, Debug, Clone)]
pub struct ModelArguments {
    /// Relay text, as TVM's `mod.astext()` prints it
    pub model: PathBuf,

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
    /// Reads the model and its parameters, calls of external functions inlined.
    pub fn load(&self) -> Result<Model, Failure> {
        self.load_as(Mode::Tolerant, ExternalCalls::Inline)
    }

    pub fn load_as(&self, mode: Mode, external: ExternalCalls) -> Result<Model, Failure> {
        let name = self.model.display().to_string();
        let bytes = std::fs::read(&self.model).map_err(|error| Failure::unreadable(&name, &error))?;
        let params = match &self.params {
            Some(path) => Params::open(path).map_err(Failure::import)?,
            None => Params::default(),
        };
        let bind_dims = self.bind_dim.clone();
        let options = ImportOptions { mode, params: self.params.is_some().then_some(&params), bind_dims, external };
        let import = relay::import(&name, &bytes, &options).map_err(Failure::import)?;
        Ok(Model { import, params })
    }
}
