//! The flags of every verb that takes a model, and how the model is read.

use std::{
    cell::Cell,
    collections::HashSet,
    path::{Path, PathBuf},
};

use miette::Report;
use smol_str::SmolStr;

use super::{
    Failure,
    caller::notice,
    contents::{Contents, check_type},
    engine::EngineFlags,
    given::Given,
    ineffective::Flag,
    kind::{self, Kind},
    name_pattern::NamePattern,
    onnx_model::{OnnxSource, OpenDims, is_decided_by_given, read_onnx},
    source_file as file,
};
use edgecut_cluster::agent::total_memory;
use edgecut_engine::{Engine, EngineError, TractEngine};
use edgecut_graph::{Graph, Origin, TensorData, constant_operators, is_constant, units::Bytes};
use edgecut_onnx::{Defaults, Interface, UnknownDim, is_onnx};
use edgecut_ops::passes::{
    bindings::{BindSizes, Binding, bindings},
    retype::{BindDim, unknown_dims},
};
use edgecut_plan::file::ModelRef;
use edgecut_profile::ProfiledBinding;
use edgecut_relay as relay;
use edgecut_relay::{ExternalCalls, Import, ImportOptions, Params, ParseMode, TypeChecks};

/// A model and how to read it.
#[derive(clap::Args, Debug, Clone)]
pub struct ModelArguments {
    /// An ONNX model, or Relay text as TVM's `mod.astext()` prints it
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
    /// A name, or a pattern such as `*.weight`. In a pattern `*` is any text and `?` any character. An ONNX file can name them itself, one a line, under the key
    /// `seeded_parameters` of its metadata.
    #[arg(long, help_heading = "Model", value_name = "NAME|GLOB", hide_short_help = true)]
    pub seed_parameters: Vec<NamePattern>,

    /// Size of unknown dimensions: `8`, `data:0=8`, `batch=8`
    ///
    /// `8` is the size of all, `data:0=8` of the first dimension of %data, `batch=8` of those that an ONNX file calls `batch`.
    /// `inspect` guesses the missing sizes of an ONNX file; other verbs refuse the model. `profile`, `plan` and `run` accept
    /// comma-separated sizes: up to 16 bindings of one model. Lists of several dimensions are zipped, so their lengths are equal.
    #[arg(long, help_heading = "Model", value_name = "[NAME:AXIS=]SIZE")]
    pub bind_dim: Vec<BindSizes>,

    /// Contents of inputs: arrays `in_<name>`; others are generated
    ///
    /// What it lacks is generated from the inputs' names. Inputs stay inputs; where a branch or a size must be known
    /// before a run, they decide it, and a line on stderr says so.
    #[arg(long, help_heading = "Model", value_name = "FILE.npz")]
    pub inputs: Option<PathBuf>,

    /// The library of ONNX Runtime, as the flags of the engine say.
    #[arg(skip)]
    pub library: Option<PathBuf>,

    /// Where the binding comes from.
    #[arg(skip)]
    binding_of: BindingOf,
}

/// Where a binding comes from: the flags give it alone, or it is one of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum BindingOf {
    #[default]
    Flags,
    Several,
}

impl ModelFlags {
    /// Its flags, and whether each was given.
    pub fn given(&self) -> [Flag; 4] {
        [
            ("--params", self.params.is_some()),
            ("--seed-parameters", !self.seed_parameters.is_empty()),
            ("--bind-dim", !self.bind_dim.is_empty()),
            ("--inputs", self.inputs.is_some()),
        ]
    }

    /// The flags that a plan's model is read with: where a flag is not given, as the model was read for the plan.
    pub fn for_plan(&self, plan: &Path, model: &ModelRef) -> ModelFlags {
        let mut flags = self.clone();
        let planned = model.binding();
        if flags.binding().map_or(true, |given| planned.includes(&given)) {
            flags.bind_dim = model.bind_dims.iter().cloned().map(BindSizes::from).collect();
        }
        if flags.seed_parameters.is_empty() {
            flags.seed_parameters = model.seed_parameters.iter().filter_map(|text| text.parse().ok()).collect();
        }
        flags.inputs = flags.inputs.or_else(|| model.inputs.as_deref().map(|inputs| resolve(plan, inputs)));
        flags
    }

    /// The bindings of unknown dimensions; a single empty one if no sizes are given.
    pub fn bindings(&self) -> Result<Vec<Binding>, Failure> {
        bindings(&self.bind_dim).map_err(|error| Failure::BadInput(Report::msg(format!("--bind-dim: {error}"))))
    }

    /// The only binding.
    ///
    /// # Errors
    /// If there are several.
    pub fn binding(&self) -> Result<Binding, Failure> {
        let mut all = self.bindings()?;
        let (count, named) = (all.len(), Binding::list(all.clone()));
        let first = all.swap_remove(0);
        if count == 1 {
            return Ok(first);
        }
        let what =
            format!("--bind-dim gives {count} bindings ({named}), but only profile, plan and run accept several");
        let advice = format!("give one size per dimension, such as {}", UnknownDim::flags_of(first.dims()));
        Err(Failure::BadInput(Report::msg(format!("{what}: {advice}"))))
    }

    /// The same flags with the sizes of `binding`, one of `all`.
    pub fn with_binding(&self, binding: &Binding, all: &[Binding]) -> ModelFlags {
        let bind_dim = binding.dims().iter().cloned().map(BindSizes::from).collect();
        let binding_of = if all.len() > 1 { BindingOf::Several } else { self.binding_of };
        ModelFlags { bind_dim, binding_of, ..self.clone() }
    }

    /// The binding as part of a profile's key.
    pub fn profiled_binding(&self) -> Result<ProfiledBinding, Failure> {
        let label = self.binding()?.to_string();
        Ok(match self.binding_of {
            BindingOf::Flags => ProfiledBinding::Sole(label),
            BindingOf::Several => ProfiledBinding::OneOfSeveral(label),
        })
    }

    /// The same, for a verb that runs `engine`: a process uses one library of ONNX Runtime.
    pub fn for_engine(&self, engine: &EngineFlags) -> ModelFlags {
        ModelFlags { library: engine.onnxruntime.clone(), ..self.clone() }
    }

    /// Whether the flags say that the input `name` is a parameter to be generated.
    pub fn is_seeded(&self, name: &str) -> bool {
        self.seed_parameters.iter().any(|pattern| pattern.is_match(name))
    }
}

/// The file `named` in a plan: relative to the working directory or, if it does not exist there, to the plan's folder.
pub fn resolve(plan: &Path, named: &str) -> PathBuf {
    let (here, there) = (PathBuf::from(named), plan.parent().unwrap_or(Path::new("")).join(named));
    if !here.exists() && there.exists() { there } else { here }
}

/// A model that was read, with the content of its parameters as far as a file gave it.
pub struct Model {
    pub import: Import,
    pub params: Params,
    /// What `--inputs` gives.
    pub given: Given,
    /// Whether that decided branches or sizes.
    pub selected: bool,
    /// The inputs and outputs that an ONNX file states.
    pub interface: Option<Interface>,
    /// Sizes of unknown dimensions that were guessed.
    pub guessed: Vec<BindDim>,
}

impl Model {
    /// Checks that the sizes of all inputs are known, as they must be before anything is measured.
    pub fn check_sizes(&self, path: &Path) -> Result<(), Failure> {
        let unknown = self.unknown_dims();
        let (named, flags) = (UnknownDim::list(&unknown), UnknownDim::flags(&unknown));
        let (what, given) = match unknown.len() {
            0 => return Ok(()),
            1 => (format!("the size of dimension {named} is not known"), "it"),
            _ => (format!("the sizes of dimensions {named} are not known"), "them"),
        };
        let advice = format!("give {given}, such as `{flags}`");
        Err(Failure::Model(Report::msg(format!("{}: {what}: {advice}", path.display()))))
    }

    /// The dimensions of inputs and parameters whose sizes neither the file nor a flag gives.
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

    /// Checks that every tensor fits into this machine's memory: a few bytes of a file can ask for any size.
    pub fn check_memory(&self, path: &Path) -> Result<(), Failure> {
        let memory = total_memory();
        let sized = self.import.graph.tensors().filter_map(|(_, tensor)| Some((tensor.ty.bytes()?, tensor)));
        match sized.max_by_key(|(bytes, _)| *bytes) {
            Some((bytes, tensor)) if memory > Bytes::ZERO && bytes > memory => {
                let what = format!("tensor `{}` of type {} takes {bytes}", tensor.name, tensor.ty);
                let advice = format!("this machine has {memory}: give dimensions smaller sizes");
                Err(Failure::Model(Report::msg(format!("{}: {what}, {advice}", path.display()))))
            }
            _ => Ok(()),
        }
    }

    /// The contents of `graph`, the model's or one made of it: as given, else generated.
    pub fn contents<'a>(&'a self, graph: &'a Graph) -> Result<Contents<'a>, Failure> {
        let contents = Contents::new(graph, self.given.clone(), &self.params)?;
        Ok(match self.interface {
            Some(_) => contents.within_ranges_of(&self.import.graph),
            // In Relay an index beyond its axis is clipped, and expected results are of such.
            None => contents,
        })
    }
}

impl ModelArguments {
    /// The model's name: its file's, without folders and extension.
    pub fn stem(&self) -> String {
        self.model.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Reads the model and its parameters, calls of external functions inlined.
    pub fn load(&self) -> Result<Model, Failure> {
        self.load_as(ParseMode::Tolerant, ExternalCalls::Inline, OpenDims::Keep)
    }

    /// Reads the model and its parameters; an `if` takes the branch that the given inputs select.
    pub fn load_as(&self, mode: ParseMode, external: ExternalCalls, open: OpenDims) -> Result<Model, Failure> {
        self.read(mode, external, Defaults::Constant, open).map_err(Failure::of_model)
    }

    /// Like [`ModelArguments::load`], with the contents `given` instead of those of `--inputs`.
    pub fn load_with(&self, given: Given) -> Result<Model, Failure> {
        let (mode, external) = (ParseMode::Tolerant, ExternalCalls::Inline);
        self.read_with(given, mode, external, Defaults::Constant, OpenDims::Keep).map_err(Failure::of_model)
    }

    /// Reads the model to write it again: inputs with a default are inputs.
    pub fn load_for_export(&self) -> Result<Model, Failure> {
        self.read(ParseMode::Tolerant, ExternalCalls::Inline, Defaults::Input, OpenDims::Keep)
            .map_err(Failure::of_model)
    }

    fn read(
        &self,
        mode: ParseMode,
        external: ExternalCalls,
        defaults: Defaults,
        open: OpenDims,
    ) -> Result<Model, Failure> {
        self.read_with(Given::open(self.flags.inputs.as_deref())?, mode, external, defaults, open)
    }

    fn read_with(
        &self,
        given: Given,
        mode: ParseMode,
        external: ExternalCalls,
        defaults: Defaults,
        open: OpenDims,
    ) -> Result<Model, Failure> {
        let binding = self.flags.binding()?;
        let name = self.model.display().to_string();
        let bytes = file::read(&self.model)?;
        let params = self.params()?;
        let model = match is_onnx(&bytes) {
            true => {
                let hash = blake3::hash(&bytes).to_hex().to_string();
                let source = OnnxSource {
                    bind_dims: binding.dims(),
                    given: &given,
                    params: &params,
                    is_seeded: &|name| self.flags.is_seeded(name),
                    defaults,
                    open,
                    library: self.flags.library.as_deref(),
                };
                let imported = read_onnx(&self.model, bytes, &source);
                given.check_read()?;
                let imported = imported?;
                let selected = is_decided_by_given(&imported);
                let (interface, graph, guessed) = (Some(imported.interface), imported.graph, imported.guessed);
                let import = Import { graph, name, hash, checks: TypeChecks::default(), guessed: Vec::new() };
                Model { import, params, given, selected, interface, guessed }
            }
            false => {
                let model = self.read_relay(name, &bytes, params, given.clone(), mode, external);
                given.check_read()?;
                model?
            }
        };
        if !model.given.is_empty() {
            model.contents(&model.import.graph)?;
        }
        if let Some(path) = &self.flags.params {
            check_names(&model.import.graph, &model.params, path)?;
        }
        self.check_seeded(&model.import.graph)?;
        warn_constant(&model.import);
        Ok(model)
    }

    fn params(&self) -> Result<Params, Failure> {
        let Some(path) = &self.flags.params else { return Ok(Params::default()) };
        let bytes = bytes::Bytes::from(file::read(path)?);
        Params::read(&path.display().to_string(), bytes.clone()).map_err(|error| {
            match kind::other(&bytes, Kind::Params) {
                Some(kind) => Failure::BadInput(Report::msg(format!("{error}; {kind}"))),
                None => Failure::import(error),
            }
        })
    }

    fn read_relay(
        &self,
        name: String,
        bytes: &[u8],
        params: Params,
        given: Given,
        mode: ParseMode,
        external: ExternalCalls,
    ) -> Result<Model, Failure> {
        let selected = Cell::new(false);
        let select = |graph: &Graph| {
            selected.set(true);
            let engine = TractEngine::new(1).map_err(|error| error.to_string())?;
            evaluate(&engine, graph, &given, &params)
        };
        let options = ImportOptions {
            mode,
            params: self.flags.params.is_some().then_some(&params),
            is_parameter: Some(&|name| self.flags.is_seeded(name)),
            bind_dims: self.flags.binding()?.dims().to_vec(),
            external,
            evaluate: if given.is_empty() { None } else { Some(&select) },
        };
        let import = relay::import(&name, bytes, &options).map_err(|error| match kind::of(bytes) {
            Some(kind) => Failure::BadInput(Report::msg(format!("{name}: {kind}"))),
            None => Failure::import(error),
        })?;
        if !import.guessed.is_empty() {
            let (count, names) = (import.guessed.len(), listed(import.guessed.iter().map(|name| name.as_str())));
            tracing::info!("{name}: {count} arguments are taken for weights by their names and uses: {names}");
        }
        let selected = selected.get();
        Ok(Model { import, params, given, selected, interface: None, guessed: Vec::new() })
    }

    /// Checks that every name and pattern of `--seed-parameters` is of a parameter.
    fn check_seeded(&self, graph: &Graph) -> Result<(), Failure> {
        let is_seeded = |id: &_| matches!(graph.tensor(*id).origin, Origin::Parameter);
        let names: Vec<&str> = graph.parameters().filter(is_seeded).map(|id| graph.tensor(id).name.as_str()).collect();
        let mut patterns = self.flags.seed_parameters.iter();
        match patterns.find(|pattern| !names.iter().any(|name| pattern.is_match(name))) {
            Some(pattern) => {
                let what = format!("--seed-parameters {pattern}: the model has no such input");
                Err(Failure::BadInput(Report::msg(format!("{}: {what}", self.model.display()))))
            }
            None => Ok(()),
        }
    }
}

/// Warns where no output depends on an input: all is computed when the model is loaded, and its runs take no time.
fn warn_constant(import: &Import) {
    let graph = &import.graph;
    let constant = constant_operators(graph);
    if !graph.outputs.is_empty() && graph.outputs.iter().all(|output| is_constant(graph, &constant, *output)) {
        let what = "its outputs depend on no input: all is computed when it is loaded, and times of runs do not include its operators";
        notice!("{}: {what}", import.name);
    }
}

/// The first names of a list, quoted.
fn listed<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    let more = if names.len() > LISTED { ", …" } else { "" };
    names.take(LISTED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ") + more
}

/// Unknown names that a message lists.
const LISTED: usize = 4;

/// Checks that the parameters of the file at `path` are some of the model's, and says which are not.
fn check_names(graph: &Graph, params: &Params, path: &Path) -> Result<(), Failure> {
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
        return Err(Failure::BadInput(Report::msg(format!("{what}: is it of another model?"))));
    }
    if !unknown.is_empty() {
        notice!("{path}: {} of {count} parameters are not of this model: {shown}", unknown.len());
    }
    Ok(())
}

/// The output of `graph`, all of whose inputs must be given.
fn evaluate(engine: &dyn Engine, graph: &Graph, given: &Given, params: &Params) -> Result<TensorData, String> {
    let content = |id| {
        let tensor = graph.tensor(id);
        let name = &tensor.name;
        if let Some(found) = given.ty(name) {
            check_type(tensor, found)?;
        }
        let data = given.get(name).or_else(|| params.get(name));
        data.cloned().ok_or_else(|| {
            EngineError::Other(format!("nothing gives the content of `%{name}`; --inputs can, as an array `in_{name}`"))
        })
    };
    let results = engine.evaluate(graph, &content).map_err(|error| error.to_string())?;
    results.into_iter().next().ok_or_else(|| "it has no output".to_string())
}
