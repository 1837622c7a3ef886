//! Flags of the verbs that take a model.

use std::path::{Path, PathBuf};

use edgecut_session::{
    Error, Model, ModelOptions,
    model::{BindSizes, StatePair, name_pattern::NamePattern},
};

use super::{engine::EngineFlags, ineffective::Flag, stderr::notice};

/// A model and how to read it.
#[derive(clap::Args, Debug, Clone)]
pub struct ModelArguments {
    /// An ONNX model, Relay text as TVM's `mod.astext()` prints it, or the folder of a decoder
    pub model: PathBuf,

    #[command(flatten)]
    pub flags: ModelFlags,
}

/// How a model is read.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct ModelFlags {
    /// Content of the parameters, as `relay.save_param_dict` writes it
    #[arg(long, help_heading = "Model", value_name = "FILE")]
    pub params: Option<PathBuf>,

    /// Inputs that are parameters, generated from their names
    ///
    /// A name, or a pattern such as `*.weight`. In a pattern `*` is any text and `?` any character. An ONNX file can
    /// name them itself, one a line, under the key `seeded_parameters` of its metadata.
    #[arg(long, help_heading = "Model", value_name = "NAME|GLOB", hide_short_help = true)]
    pub seed_parameters: Vec<NamePattern>,

    /// Size of unknown dimensions: `8`, `data:0=8`, `batch=8`
    ///
    /// `8` is the size of all, `data:0=8` of the first dimension of %data, `batch=8` of those that an ONNX file calls
    /// `batch`. `inspect` guesses the missing sizes of an ONNX file; other verbs refuse the model. `profile`, `plan`
    /// and `run` accept comma-separated sizes: up to 16 bindings of one model. Lists of several dimensions are zipped,
    /// so their lengths are equal.
    #[arg(long, help_heading = "Model", value_name = "[NAME:AXIS=]SIZE")]
    pub bind_dim: Vec<BindSizes>,

    /// Contents of inputs: arrays `in_<name>`; others are generated
    ///
    /// What it lacks is generated from the inputs' names. Inputs stay inputs; where a branch or a size must be known
    /// before a run, they decide it, and a line on stderr says so.
    #[arg(long, help_heading = "Model", value_name = "FILE.npz")]
    pub inputs: Option<PathBuf>,

    /// Tokens that the KV cache of a decoder has room for, those of the prompt included
    ///
    /// By default the model's context length, at most 2048. `run MODEL --generate` takes as many as it needs. A plan keeps the
    /// context that it was made with. A decoder is the folder that ONNX Runtime's model builder writes, or an ONNX file with its
    /// inputs.
    #[arg(long, help_heading = "Model", value_name = "TOKENS", hide_short_help = true)]
    pub context: Option<u64>,

    /// With `plan`, tokens of the prompt; with other verbs, tokens of a decoder's step
    ///
    /// `plan` then also predicts the time to the first token (TTFT). `run --generate` reads the prompt in steps of this length; the
    /// default is at most 128. Otherwise a step has one token by default.
    #[arg(long, help_heading = "Model", value_name = "TOKENS", hide_short_help = true)]
    pub prompt: Option<u64>,

    /// An input that the next step takes from this output
    ///
    /// Caches are known by their names: `past_key_values.0.key` and `present.0.key`.
    #[arg(long, help_heading = "Model", value_name = "INPUT=OUTPUT", hide_short_help = true)]
    pub state: Vec<StatePair>,
}

impl ModelFlags {
    /// The flags, and whether each one is given.
    pub fn given(&self) -> [Flag; 7] {
        [
            ("--params", self.params.is_some()),
            ("--seed-parameters", !self.seed_parameters.is_empty()),
            ("--bind-dim", !self.bind_dim.is_empty()),
            ("--inputs", self.inputs.is_some()),
            ("--context", self.context.is_some()),
            ("--prompt", self.prompt.is_some()),
            ("--state", !self.state.is_empty()),
        ]
    }

    /// The options for reading a model that these flags give.
    pub fn options(&self) -> ModelOptions {
        ModelOptions {
            params: self.params.clone(),
            seed_parameters: self.seed_parameters.clone(),
            bind_dim: self.bind_dim.clone(),
            inputs: self.inputs.clone(),
            context: self.context,
            prompt: self.prompt,
            state: self.state.clone(),
            ..ModelOptions::default()
        }
    }

    /// Like [`ModelFlags::options`], with the ONNX Runtime library of `engine`. A process uses one library.
    pub fn options_for(&self, engine: &EngineFlags) -> ModelOptions {
        ModelOptions { onnxruntime: engine.onnxruntime.clone(), ..self.options() }
    }
}

/// Reads the model at `path`, and prints its notices to stderr.
pub fn open(path: &Path, options: &ModelOptions) -> Result<Model, Error> {
    let model = Model::open(path, options)?;
    model.notices.iter().for_each(|line| notice!("{line}"));
    Ok(model)
}
