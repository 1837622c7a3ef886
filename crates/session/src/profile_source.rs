//! Profile files: rows of edgecut, CSV of EOP, traces of TVM's debug executor, ONNX Runtime's profiles and statistics of memory.
//! The content of a file determines its format.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::{
    Error, Events, Model, ModelOptions,
    error::Message,
    file_kind::{self as kind, FileKind, is_json_object},
    input as file,
    located::Located,
    ort_names::ort_names,
};
use edgecut_graph::{DeviceName, Graph};
use edgecut_interop::{
    eop, ort_import, ort_memory, ort_profile, profile_import as import, profile_import::Imported, tvm_debug::Dump,
};
use edgecut_ops::passes::bindings::Binding;
use edgecut_profile::{ProfileRow, ProfiledDevice, reader};
use edgecut_relay::eop_numbering;

/// A model with profile files: a model that was read, with the text of its file, or the graph of a dump.
pub enum ProfiledModel {
    Read { model: Box<Model>, text: String },
    Dump { dump: Box<Dump>, hash: String, path: PathBuf, options: Box<ModelOptions> },
}

/// A profile file, and the device that it is declared to be of.
#[derive(Debug, Clone)]
pub struct Source {
    pub path: PathBuf,
    /// Server and device.
    pub device: Option<(String, String)>,
}

impl Source {
    /// Parses `FILE` or `FILE=SERVER/DEVICE`.
    pub fn parse(text: &str) -> Source {
        let named = text.rsplit_once('=').and_then(|(path, device)| Some((path, device.split_once('/')?)));
        match named {
            Some((path, (server, device))) if !server.is_empty() && !device.is_empty() && !path.is_empty() => {
                Source { path: path.into(), device: Some((server.to_string(), device.to_string())) }
            }
            _ => Source { path: text.into(), device: None },
        }
    }

    /// Reads the rows of the file for the model `subject`.
    ///
    /// # Errors
    /// If the file is not a profile, or is one of another model.
    pub fn read(&self, subject: &ProfiledModel) -> Result<Imported, Error> {
        let text = text(&self.path)?;
        let bad = |what: String| Error::BadInput(Message::from(format!("{}: {what}", self.path.display())));
        match (times(&text), subject) {
            (Times::None(kind), _) => Err(bad(format!("not a profile: {kind}"))),
            (Times::Rows, _) => {
                let rows = self.renamed(reader::parse(&text).map_err(&bad)?).map_err(bad)?;
                Ok(Imported { rows, ..Imported::default() })
            }
            (Times::Eop, ProfiledModel::Read { model, text: relay, .. }) => {
                let measured = eop::read(&text).map_err(|e| bad(e.to_string()))?;
                let numbered = eop_numbering::operators(relay, &model.import.graph).ok_or_else(|| {
                    bad("the module cannot be numbered as EOP does: it has more than calls, tuples and projections in main".into())
                })?;
                let place = self.place("eop", if measured.is_gpu { "gpu0" } else { "cpu" });
                import::eop(&measured, &model.import.graph, &numbered, &place).map_err(|e| bad(e.to_string()))
            }
            (Times::Eop, ProfiledModel::Dump { .. }) => {
                Err(bad("a profile of EOP's is of a Relay module: give that as the model".into()))
            }
            (Times::Trace | Times::Dump, ProfiledModel::Dump { dump, .. }) => {
                let trace = match times(&text) {
                    Times::Trace => text,
                    _ => self::text(
                        &counterpart(&self.path).ok_or_else(|| bad("its trace cannot be found by name".into()))?,
                    )?,
                };
                let times = dump.times(&trace).map_err(|e| bad(e.to_string()))?;
                Ok(import::tvm(&dump.graph, &times, &self.place("tvm", dump.device())))
            }
            (Times::Trace | Times::Dump, ProfiledModel::Read { .. }) => {
                Err(bad("a trace of TVM's debug executor is of a graph dump: give the dump as the model".into()))
            }
            (Times::OrtProfile | Times::OrtMemory, ProfiledModel::Read { model, .. }) => self.ort(&text, model, bad),
            (Times::OrtProfile | Times::OrtMemory, ProfiledModel::Dump { .. }) => {
                Err(bad("ONNX Runtime measured a model: give that as the model, not a graph dump".into()))
            }
        }
    }

    /// Reads what ONNX Runtime measured of `model`.
    fn ort(&self, text: &str, model: &Model, bad: impl Fn(String) -> Error) -> Result<Imported, Error> {
        let (graph, names) = (model.graph(), ort_names(model)?);
        let place = |provider: &str, threads: usize| {
            let (server, device) = self.device.clone().unwrap_or(("ort".to_string(), ort_import::device(provider)));
            ort_import::place(&server, &device, provider, threads)
        };
        let imported = match times(text) {
            Times::OrtMemory => {
                let kernels = ort_memory::read(text).map_err(|e| bad(e.to_string()))?;
                ort_import::memory(&kernels, graph, &names, &place("", 1))
            }
            _ => {
                let profile = ort_profile::read(text).map_err(|e| bad(e.to_string()))?;
                ort_import::times(&profile, graph, &names, &|provider| place(provider, profile.threads))
            }
        };
        imported.map_err(|e| bad(e.to_string()))
    }

    /// `rows` with the declared server and device.
    fn renamed(&self, mut rows: Vec<ProfileRow>) -> Result<Vec<ProfileRow>, String> {
        let Some((server, device)) = &self.device else { return Ok(rows) };
        let of = |row: &ProfileRow| (row.server.clone(), row.device.clone());
        if let Some((first, other)) =
            rows.first().map(of).and_then(|f| Some((f.clone(), rows.iter().map(of).find(|o| *o != f)?)))
        {
            let ((a, b), (c, d)) = (first, other);
            return Err(format!("it has rows of {a}/{b} and {c}/{d}: as {server}/{device} it must be of one device"));
        }
        for row in &mut rows {
            (row.server, row.device) = (server.clone(), device.clone());
        }
        Ok(rows)
    }

    fn place(&self, server: &str, device: &str) -> ProfiledDevice {
        let (server, device) = self.device.clone().unwrap_or((server.to_string(), device.to_string()));
        import::place(&server, &device, &self.path.file_stem().unwrap_or_default().to_string_lossy())
    }
}

/// Which kind of times a file has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    Rows,
    Eop,
    Trace,
    Dump,
    OrtProfile,
    /// Memory, and no times.
    OrtMemory,
    /// No times: the file is of another known kind.
    None(FileKind),
}

fn times(text: &str) -> Times {
    let is_json = text.trim_start().starts_with('{');
    let header = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let has = |name: &str| header.split(',').any(|cell| cell.trim() == name);
    match is_json {
        false if ort_memory::is_ort_memory(text) => Times::OrtMemory,
        false if ort_profile::is_ort_profile(text) => Times::OrtProfile,
        true if text.contains("\"traceEvents\"") => Times::Trace,
        true if text.contains("\"arg_nodes\"") => Times::Dump, // JSON of TVM's
        false if has("a_name") => Times::Eop,
        false if has("signature") || header.is_empty() => Times::Rows,
        _ => match kind::detect_any(text.as_bytes()) {
            Some(FileKind::Json) => Times::Dump,
            Some(FileKind::Csv) | None => Times::Rows,
            Some(kind) => Times::None(kind),
        },
    }
}

impl ProfiledModel {
    /// Reads the model or the graph dump at `path`.
    ///
    /// # Errors
    /// If it is neither a model nor a dump.
    pub fn open(path: &Path, options: &ModelOptions) -> Result<ProfiledModel, Error> {
        if !is_dump(path) {
            let model = Box::new(Model::open(path, options)?);
            // The file, where `path` is the folder of a decoder.
            let text = text(&model.path)?;
            return Ok(ProfiledModel::Read { model, text });
        }
        let text = text(path)?;
        let dump = Dump::read(&text).map_err(|e| Error::bad_input(Located::new(path, e)))?;
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        let (dump, path, options) = (Box::new(dump), path.to_path_buf(), Box::new(options.clone()));
        Ok(ProfiledModel::Dump { dump, hash, path, options })
    }

    /// The graph dump for `source`, which is a dump or a trace next to one. `None` for other profiles.
    ///
    /// # Errors
    /// If the file does not exist, or is of another known kind.
    pub(crate) fn of_dump(source: &Path) -> Result<Option<PathBuf>, Error> {
        match times(&text(source)?) {
            Times::Dump => Ok(Some(source.to_path_buf())),
            Times::Trace => Ok(counterpart(source)),
            Times::None(kind) => {
                Err(Error::BadInput(Message::from(format!("{}: not a profile: {kind}", source.display()))))
            }
            Times::Rows | Times::Eop | Times::OrtProfile | Times::OrtMemory => Ok(None),
        }
    }

    pub fn graph(&self) -> &Graph {
        match self {
            ProfiledModel::Read { model, .. } => &model.import.graph,
            ProfiledModel::Dump { dump, .. } => &dump.graph,
        }
    }

    pub fn path(&self) -> &Path {
        match self {
            ProfiledModel::Read { model, .. } => &model.path,
            ProfiledModel::Dump { path, .. } => path,
        }
    }

    pub fn hash(&self) -> &str {
        match self {
            ProfiledModel::Read { model, .. } => &model.import.hash,
            ProfiledModel::Dump { hash, .. } => hash,
        }
    }
}

/// Whether the file at `path` is a graph dump: JSON, unlike Relay text, but not a plan.
pub(crate) fn is_dump(path: &Path) -> bool {
    let is_dump = |text: String| is_json_object(text.as_bytes()) && !kind::is_plan(text.as_bytes());
    text(path).is_ok_and(is_dump)
}

/// Reads the rows of several files for one model. Rows of another binding than `binding` are dropped. Files of memory alone add
/// it to the rows of their device.
///
/// # Errors
/// If a file is not a profile of the model, two files are of one device, or a file of memory has no other of its device.
pub fn rows(
    sources: &[Source],
    subject: &ProfiledModel,
    binding: &Binding,
    events: &Events,
) -> Result<Vec<(PathBuf, Vec<ProfileRow>)>, Error> {
    let (mut files, binding): (Vec<(PathBuf, Vec<ProfileRow>)>, String) = (Vec::new(), binding.to_string());
    let mut memory: Vec<(&Source, Vec<ProfileRow>)> = Vec::new();
    for source in sources {
        let imported = source.read(subject)?;
        events.notices(&imported.notes);
        let mut new = imported.rows;
        if imported.is_memory {
            memory.push((source, new));
            continue;
        }
        new.retain(|row| row.binding.is_empty() || row.binding == binding);
        let known: HashSet<(&str, &str)> =
            files.iter().flat_map(|(_, rows)| rows).map(|row| (row.server.as_str(), row.device.as_str())).collect();
        if let Some(row) = new.iter().find(|row| known.contains(&(row.server.as_str(), row.device.as_str()))) {
            let (server, device) = (&row.server, &row.device);
            let what = format!("{}: an earlier profile is of {server}/{device} too", source.path.display());
            return Err(Error::BadInput(Message::from(format!("{what}: name its device, as FILE=SERVER/DEVICE"))));
        }
        files.push((source.path.clone(), new));
    }
    for (source, new) in memory {
        let timed = files.iter_mut().find(|(_, rows)| rows.first().zip(new.first()).is_some_and(is_of_one_device));
        let (_, rows) = timed.ok_or_else(|| without_times(source, &new))?;
        ort_import::add_memory(rows, &new);
    }
    Ok(files)
}

/// Whether two rows are of one device.
pub(crate) fn is_of_one_device((a, b): (&ProfileRow, &ProfileRow)) -> bool {
    (&a.server, &a.device) == (&b.server, &b.device)
}

/// There are no times for the statistics of memory `rows` of `source`.
fn without_times(source: &Source, rows: &[ProfileRow]) -> Error {
    let device = rows.first().map_or(String::new(), |row| DeviceName::new(&row.server, &row.device).to_string());
    let what = format!(
        "statistics of memory have no times to plan with: give a profile of {device} too, such as the session's JSON, or name the \
         device of this file as that of a profile that you give, as FILE=SERVER/DEVICE"
    );
    Error::BadInput(Message::from(format!("{}: {what}", source.path.display())))
}

fn text(path: &Path) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&file::read(path)?).into_owned())
}

/// The trace of a dump, or the dump of a trace, by TVM's file names.
fn counterpart(path: &Path) -> Option<PathBuf> {
    const NAMES: [&str; 2] = ["graph_dump", "execution_trace"];
    let name = path.file_name()?.to_str()?;
    let (from, to) = if name.contains(NAMES[0]) { (NAMES[0], NAMES[1]) } else { (NAMES[1], NAMES[0]) };
    name.contains(from).then(|| path.with_file_name(name.replace(from, to)))
}
