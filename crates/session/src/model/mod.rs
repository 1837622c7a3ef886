//! Models: ONNX or Relay text, with the contents of parameters and inputs that files give.
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | options for reading a model |
//! | `onnx` | import of ONNX models, with notices about contents that decided something |
//! | [`given`], [`contents`] | arrays of an `.npz` file; contents of all inputs and parameters |
//! | [`guessed`] | sizes of unknown dimensions that were guessed |
//! | [`name_pattern`] | patterns of tensor names |
//! | [`summary`] | summary of a model |

pub mod contents;
pub mod given;
pub mod guessed;
pub mod name_pattern;
mod onnx;
pub mod options;
pub mod summary;

use std::{
    cell::Cell,
    collections::BTreeMap,
    collections::HashSet,
    path::{Path, PathBuf},
};

use smol_str::SmolStr;

use edgecut_agent::server::total_memory;
use edgecut_engine::{Engine, EngineError, TractEngine};
use edgecut_graph::{Graph, Origin, TensorData, constant_operators, is_constant, units::Bytes};
use edgecut_onnx::{Interface, OnnxError, ShardedModel, UnknownDim, is_onnx};
use edgecut_ops::passes::retype::{BindDim, unknown_dims};
use edgecut_relay as relay;
use edgecut_relay::{Import, ImportOptions, Params};

use crate::{
    Error, decoder,
    file_kind::{self as kind, FileKind},
    input as file,
};
pub use edgecut_graph::StatePair;
pub use edgecut_ops::passes::bindings::{BindSizes, Binding};
use edgecut_ops::passes::index_ranges::ValueRange;
pub use edgecut_relay::TypeChecks;

use contents::{Contents, check_type};
use given::Given;
use onnx::{OnnxSource, is_decided_by_given, read_onnx};
use options::ModelOptions;

/// A model, with the contents of parameters and inputs that files give.
pub struct Model {
    /// The file of the model.
    pub path: PathBuf,
    pub import: Import,
    pub params: Params,
    /// The contents from [`ModelOptions::inputs`].
    pub given: Given,
    /// Whether these contents decided branches or sizes.
    pub selected: bool,
    /// Of an ONNX model: the inputs whose contents, given or generated, decided branches or sizes.
    pub deciding: Vec<SmolStr>,
    /// The inputs and outputs as an ONNX file declares them.
    pub interface: Option<Interface>,
    /// The multi-device annotations of an ONNX file, if it has any: see [`crate::sharding`].
    pub sharded: Result<Option<ShardedModel>, OnnxError>,
    /// The guessed sizes of unknown dimensions.
    pub guessed: Vec<BindDim>,
    /// Notices for the user about how the model was read.
    pub notices: Vec<String>,
    /// The options that the model was read with.
    pub options: ModelOptions,
    /// Its states: those of [`ModelOptions::state`], and caches of a fixed size.
    pub states: Vec<StatePair>,
    /// The values of inputs that are generated, by name, in addition to those that operators accept.
    ranges: Vec<(SmolStr, ValueRange)>,
    /// Of a decoder in steps of several tokens: its inputs in the first step of a sequence.
    step_inputs: BTreeMap<SmolStr, TensorData>,
}

impl Model {
    /// Reads the model at `path`: ONNX, or Relay text as TVM's `mod.astext()` prints it; or the folder of a decoder, as
    /// ONNX Runtime's model builder writes it.
    ///
    /// # Errors
    /// If a file cannot be read, an option does not fit the model, or the options give several bindings.
    pub fn open(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Model, Error> {
        options.binding()?;
        Given::open(options.inputs.as_deref())
            .and_then(|given| read(path.as_ref(), options, given))
            .map_err(Error::of_model)
    }

    /// Like [`Model::open`], with the contents `given` instead of [`ModelOptions::inputs`].
    ///
    /// # Errors
    /// As of [`Model::open`].
    pub(crate) fn open_with(path: &Path, options: &ModelOptions, given: Given) -> Result<Model, Error> {
        read(path, options, given).map_err(Error::of_model)
    }

    /// The name of the model's file, without folder and extension.
    pub fn name(&self) -> String {
        stem(&self.path)
    }

    pub fn graph(&self) -> &Graph {
        &self.import.graph
    }

    /// Checks that the sizes of all inputs are known. They must be known before anything is measured.
    ///
    /// # Errors
    /// If sizes are not known. The message lists their dimensions.
    pub fn check_sizes(&self) -> Result<(), Error> {
        let unknown = self.unknown_dims();
        let (named, options) = (UnknownDim::list(&unknown), UnknownDim::options(&unknown));
        let (what, given) = match unknown.len() {
            0 => return Ok(()),
            1 => (format!("the size of dimension {named} is not known"), "it"),
            _ => (format!("the sizes of dimensions {named} are not known"), "them"),
        };
        let advice = if decoder::interface::has_open_caches(self) {
            decoder::sizes::CONTEXT_ADVICE.to_string()
        } else {
            format!("give {given}, such as {options}")
        };
        Err(Error::Model(format!("{}: {what}: {advice}", self.path.display()).into()))
    }

    /// The dimensions of inputs and parameters whose sizes neither the file nor an option gives.
    pub fn unknown_dims(&self) -> Vec<UnknownDim> {
        let graph = &self.import.graph;
        let mut unknown = Vec::new();
        for tensor in graph.inputs().chain(graph.parameters()).map(|id| graph.tensor(id)) {
            if self.given.ty(&tensor.name).is_none() && self.params.get(&tensor.name).is_none() {
                unknown_dims(&tensor.name, &tensor.ty.clone().into(), &mut unknown);
            }
        }
        let named: Vec<UnknownDim> = self.interface.iter().flat_map(Interface::unknown_dims).collect();
        let of = |(input, axis): (SmolStr, usize)| {
            let same = named.iter().find(|dim| dim.input == input && dim.axis == axis);
            let rank = graph.tensors().find(|(_, tensor)| tensor.name == input).map_or(0, |(_, t)| t.ty.shape.rank());
            same.cloned().unwrap_or(UnknownDim { input, axis, rank, symbol: None })
        };
        unknown.into_iter().map(of).collect()
    }

    /// [`Model::unknown_dims`] as text; empty if there are none.
    pub fn unknown_dims_text(&self) -> String {
        let dims = self.unknown_dims();
        if dims.is_empty() { String::new() } else { UnknownDim::list(&dims) }
    }

    /// Checks that every tensor fits into this machine's memory. A small file can declare tensors of any size.
    ///
    /// # Errors
    /// If a tensor does not fit. The message names the largest one.
    pub fn check_memory(&self) -> Result<(), Error> {
        let memory = total_memory();
        let sized = self.import.graph.tensors().filter_map(|(_, tensor)| Some((tensor.ty.bytes()?, tensor)));
        match sized.max_by_key(|(bytes, _)| *bytes) {
            Some((bytes, tensor)) if memory > Bytes::ZERO && bytes > memory => {
                let what = format!("tensor `{}` of type {} takes {bytes}", tensor.name, tensor.ty);
                let advice = format!("this machine has {memory}: give dimensions smaller sizes");
                Err(Error::Model(format!("{}: {what}, {advice}", self.path.display()).into()))
            }
            _ => Ok(()),
        }
    }

    /// The contents of `graph`, which is the model's graph or made from it. Contents that are not given are generated.
    ///
    /// # Errors
    /// If given contents do not fit the model.
    pub fn contents<'a>(&'a self, graph: &'a Graph) -> Result<Contents<'a>, Error> {
        let contents = Contents::new(graph, self.given.clone(), &self.params)?;
        Ok(match self.interface {
            Some(_) => contents.within_ranges_of(&self.import.graph).within(&self.ranges).of_step(&self.step_inputs),
            // Relay clips an index beyond its axis, and expected results depend on that.
            None => contents,
        })
    }
}

/// The name of the model at `path`.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn read(path: &Path, options: &ModelOptions, given: Given) -> Result<Model, Error> {
    let located = decoder::sizes::located(path, options)?;
    let (path, options) = (located.file.as_ref(), located.options.as_ref());
    let source = Source { path, options, given };
    let params = source.params()?;
    let bytes = file::read(path)?;
    let is_onnx = is_onnx(&bytes);
    let read = if is_onnx { source.read_onnx(bytes, params) } else { source.read_relay(&bytes, params) };
    source.given.check_read()?;
    let mut model = read.map_err(|error| unknown_context(path, options, &source.given).unwrap_or(error))?;
    decoder::interface::buffer_appended_caches(&mut model);
    model.states = decoder::interface::states(&model)?;
    model.ranges = decoder::interface::generated_ranges(&model)?;
    model.step_inputs = decoder::interface::first_inputs(&model);
    if !model.given.is_empty() {
        model.contents(&model.import.graph)?;
    }
    if let Some(path) = &options.params {
        model.notices.extend(check_names(&model.import.graph, &model.params, path)?);
    }
    source.check_seeded(&model.import.graph)?;
    model.notices.extend(constant_notice(&model.import));
    Ok(model)
}

/// The error that the length of the KV cache of the model at `path`, which cannot be read, is unknown; `None` if that is not why.
fn unknown_context(path: &Path, options: &ModelOptions, given: &Given) -> Option<Error> {
    if !decoder::sizes::has_unknown_context(path, options) {
        return None;
    }
    let sized = ModelOptions { context: Some(options.prompt.unwrap_or(1)), ..options.clone() };
    read(path, &sized, given.clone()).ok()?;
    let what = format!("{}: {}", path.display(), decoder::sizes::CONTEXT_ADVICE);
    Some(Error::BadInput(what.into()))
}

/// What a model is read from.
struct Source<'a> {
    path: &'a Path,
    options: &'a ModelOptions,
    given: Given,
}

impl Source<'_> {
    fn params(&self) -> Result<Params, Error> {
        let Some(path) = &self.options.params else { return Ok(Params::default()) };
        let bytes = bytes::Bytes::from(file::read(path)?);
        Params::read(&path.display().to_string(), bytes.clone()).map_err(|error| {
            match kind::mismatch(&bytes, FileKind::Params) {
                Some(kind) => Error::BadInput(format!("{error}; {kind}").into()),
                None => Error::import(error),
            }
        })
    }

    fn read_onnx(&self, bytes: Vec<u8>, params: Params) -> Result<Model, Error> {
        let hash = blake3::hash(&bytes).to_hex().to_string();
        let source = OnnxSource {
            bind_dims: self.options.binding()?.dims().to_vec(),
            given: &self.given,
            params: &params,
            is_seeded: &|name| self.options.is_seeded(name),
            defaults: self.options.defaults(),
            guess_dims: self.options.guess_dims,
            library: self.options.onnxruntime.as_deref(),
        };
        let (imported, notices) = read_onnx(self.path, bytes, &source)?;
        let selected = is_decided_by_given(&imported);
        let mut deciding: Vec<SmolStr> = imported.decisions.iter().flat_map(|of| of.inputs.clone()).collect();
        deciding.sort();
        deciding.dedup();
        let (interface, graph, guessed) = (Some(imported.interface), imported.graph, imported.guessed);
        let name = self.path.display().to_string();
        let import = Import { graph, name, hash, checks: TypeChecks::default(), guessed: Vec::new() };
        let (path, given) = (self.path.to_path_buf(), self.given.clone());
        Ok(Model {
            path,
            import,
            params,
            given,
            selected,
            deciding,
            interface,
            sharded: imported.sharded,
            guessed,
            notices,
            options: self.options.clone(),
            states: Vec::new(),
            ranges: Vec::new(),
            step_inputs: BTreeMap::new(),
        })
    }

    fn read_relay(&self, bytes: &[u8], params: Params) -> Result<Model, Error> {
        let name = self.path.display().to_string();
        let selected = Cell::new(false);
        let select = |graph: &Graph| {
            selected.set(true);
            let engine = TractEngine::new(1).map_err(|error| error.to_string())?;
            evaluate(&engine, graph, &self.given, &params)
        };
        let options = ImportOptions {
            mode: self.options.parse_mode(),
            params: self.options.params.is_some().then_some(&params),
            is_parameter: Some(&|name| self.options.is_seeded(name)),
            bind_dims: self.options.binding()?.dims().to_vec(),
            external: self.options.external_calls(),
            evaluate: if self.given.is_empty() { None } else { Some(&select) },
        };
        let import = relay::import(&name, bytes, &options).map_err(|error| match kind::detect(bytes) {
            Some(kind) => Error::BadInput(format!("{name}: {kind}").into()),
            None => Error::import(error),
        })?;
        if !import.guessed.is_empty() {
            let (count, names) = (import.guessed.len(), listed(import.guessed.iter().map(|name| name.as_str())));
            tracing::info!("{name}: {count} arguments are taken for weights by their names and uses: {names}");
        }
        Ok(Model {
            path: self.path.to_path_buf(),
            import,
            params,
            given: self.given.clone(),
            selected: selected.get(),
            deciding: Vec::new(),
            interface: None,
            sharded: Ok(None),
            guessed: Vec::new(),
            notices: Vec::new(),
            options: self.options.clone(),
            states: Vec::new(),
            ranges: Vec::new(),
            step_inputs: BTreeMap::new(),
        })
    }

    /// Checks that every pattern of seeded parameters matches a parameter.
    fn check_seeded(&self, graph: &Graph) -> Result<(), Error> {
        let is_seeded = |id: &_| matches!(graph.tensor(*id).origin, Origin::Parameter);
        let names: Vec<&str> = graph.parameters().filter(is_seeded).map(|id| graph.tensor(id).name.as_str()).collect();
        let mut patterns = self.options.seed_parameters.iter();
        match patterns.find(|pattern| !names.iter().any(|name| pattern.is_match(name))) {
            Some(pattern) => {
                let what = format!("option `seed_parameters={pattern}`: the model has no such input");
                Err(Error::BadInput(format!("{}: {what}", self.path.display()).into()))
            }
            None => Ok(()),
        }
    }
}

/// A notice if no output depends on an input. Then everything is computed when the model is loaded, and runs take no
/// time.
fn constant_notice(import: &Import) -> Option<String> {
    let graph = &import.graph;
    let constant = constant_operators(graph);
    let is_constant =
        !graph.outputs.is_empty() && graph.outputs.iter().all(|output| is_constant(graph, &constant, *output));
    let what = "its outputs depend on no input: all is computed when it is loaded, and times of runs do not include its operators";
    is_constant.then(|| format!("{}: {what}", import.name))
}

/// The first names of a list, quoted.
fn listed<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    let more = if names.len() > LISTED { ", …" } else { "" };
    names.take(LISTED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ") + more
}

/// Maximum number of names in a message.
const LISTED: usize = 4;

/// Checks that the file at `path` has parameters of the model. Returns a notice about those that are not.
fn check_names(graph: &Graph, params: &Params, path: &Path) -> Result<Option<String>, Error> {
    let known: HashSet<&str> = graph.inputs().chain(graph.parameters()).map(|id| &*graph.tensor(id).name).collect();
    let is_known = |name: &str| known.contains(name) || known.contains(&*format!("v{name}"));
    let mut unknown: Vec<&str> = params.iter().map(|(name, _)| name).filter(|name| !is_known(name)).collect();
    unknown.sort_unstable();
    let shown = listed(unknown.iter().copied());
    let (path, count) = (path.display(), params.len());
    if unknown.len() == count && count > 0 {
        let mut names: Vec<&str> = known.into_iter().collect();
        names.sort_unstable();
        let names = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let what = format!("{path}: none of its parameters ({shown}) is one of this model ({names}, …)");
        return Err(Error::BadInput(format!("{what}: is it of another model?").into()));
    }
    let notice = || format!("{path}: {} of {count} parameters are not of this model: {shown}", unknown.len());
    Ok((!unknown.is_empty()).then(notice))
}

/// Computes the output of `graph`. All its inputs must be given.
fn evaluate(engine: &dyn Engine, graph: &Graph, given: &Given, params: &Params) -> Result<TensorData, String> {
    let content = |id| {
        let tensor = graph.tensor(id);
        let name = &tensor.name;
        if let Some(found) = given.ty(name) {
            check_type(tensor, found)?;
        }
        let data = given.get(name).or_else(|| params.get(name));
        data.cloned().ok_or_else(|| {
            EngineError::Other(format!(
                "nothing gives the content of `%{name}`; option `inputs` can, as an array `in_{name}`"
            ))
        })
    };
    let results = engine.evaluate(graph, &content).map_err(|error| error.to_string())?;
    results.into_iter().next().ok_or_else(|| "it has no output".to_string())
}
