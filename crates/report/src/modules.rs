//! A plan as Relay modules, one for each stage of each device, with a manifest that says how they fit together:
//! what TVM needs to deploy it.

use std::collections::BTreeMap;

use serde::Serialize;

use edgecut_graph::{Graph, Origin, TensorId};
use edgecut_plan::{
    DeviceId, Plan,
    stages::{Stage, StageError, stages},
};
use edgecut_relay::print::{parameter_names, print_graph};

/// The version of the manifest's format.
const VERSION: u32 = 1;

/// The files of an exported plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Export {
    pub manifest: Manifest,
    /// Relay text by file name.
    pub modules: Vec<(String, String)>,
}

/// How the modules of a plan fit together. They can run one after the other in the order given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Manifest {
    pub version: u32,
    pub model: String,
    pub blake3: String,
    pub modules: Vec<Module>,
    /// The model's outputs, in order: which module gives each, and which of its outputs.
    pub outputs: Vec<Source>,
}

/// One stage of one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Module {
    pub file: String,
    pub server: String,
    pub device: String,
    pub operators: usize,
    /// Parameters of the function, in its order.
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
}

/// One parameter of a module's function.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Input {
    /// In the module.
    pub name: String,
    #[serde(rename = "type")]
    pub ty: String,
    pub from: Source,
}

/// Where a tensor comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The model's input of this name.
    Input(String),
    /// The model's parameter of this name.
    Parameter(String),
    /// A constant of the model, which no module makes.
    Constant(String),
    /// An output of another module: a transfer if that is on another device.
    Module { file: String, output: usize },
}

/// One result of a module.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Output {
    #[serde(rename = "type")]
    pub ty: String,
    pub bytes: Option<u64>,
    /// Files of the modules that take it.
    pub to: Vec<String>,
}

/// Writes each stage of `plan`, made for `graph`, as a module of its own.
///
/// # Errors
/// If the plan is of another model.
pub fn modules(plan: &Plan, graph: &Graph) -> Result<Export, StageError> {
    let stages = stages(plan, graph)?;
    let files = file_names(plan, &stages);
    let mut made: BTreeMap<TensorId, (usize, usize)> = BTreeMap::new();
    for (at, stage) in stages.iter().enumerate() {
        for (output, tensor) in stage.part.graph.outputs.iter().enumerate() {
            made.insert(stage.part.whole_tensor[tensor.0 as usize], (at, output));
        }
    }
    let source = |tensor: TensorId| {
        let name = graph.tensor(tensor).name.to_string();
        match (&graph.tensor(tensor).origin, made.get(&tensor)) {
            (_, Some((module, output))) => Source::Module { file: files[*module].clone(), output: *output },
            (Origin::Parameter, None) => Source::Parameter(name),
            (Origin::Constant(_), None) => Source::Constant(name),
            (_, None) => Source::Input(name),
        }
    };
    let described = stages.iter().zip(&files).map(|(stage, file)| {
        let whole = |tensor: TensorId| stage.part.whole_tensor[tensor.0 as usize];
        let device = &plan.devices[stage.device.0 as usize];
        let inputs = parameter_names(&stage.part.graph).into_iter().map(|(id, name)| Input {
            name,
            ty: graph.tensor(whole(id)).ty.to_string(),
            from: source(whole(id)),
        });
        let outputs = stage.part.graph.outputs.iter().map(|id| Output {
            ty: graph.tensor(whole(*id)).ty.to_string(),
            bytes: graph.tensor(whole(*id)).ty.bytes().map(|bytes| bytes.0),
            to: takers(&stages, &files, whole(*id), file),
        });
        Module {
            file: file.clone(),
            server: device.server.clone(),
            device: device.device.clone(),
            operators: stage.part.graph.operators().len(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
        }
    });
    let manifest = Manifest {
        version: VERSION,
        model: plan.model.path.clone(),
        blake3: plan.model.blake3.clone(),
        modules: described.collect(),
        outputs: graph.outputs.iter().map(|output| source(*output)).collect(),
    };
    let texts = stages.iter().zip(files).map(|(stage, file)| (file, print_graph(&stage.part.graph)));
    Ok(Export { manifest, modules: texts.collect() })
}

/// `00-server-device.relay`, numbered in running order.
fn file_names(plan: &Plan, stages: &[Stage]) -> Vec<String> {
    let name = |DeviceId(at): DeviceId| {
        let device = &plan.devices[at as usize];
        let name = format!("{}-{}", device.server, device.device);
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect::<String>()
    };
    stages.iter().enumerate().map(|(at, stage)| format!("{at:02}-{}.relay", name(stage.device))).collect()
}

/// The modules other than `file` that read `tensor`.
fn takers(stages: &[Stage], files: &[String], tensor: TensorId, file: &str) -> Vec<String> {
    let reads = |stage: &Stage| {
        let mut inputs = stage.part.graph.inputs();
        inputs.any(|input| stage.part.whole_tensor[input.0 as usize] == tensor)
    };
    let others = stages.iter().zip(files).filter(|(stage, other)| *other != file && reads(stage));
    others.map(|(_, file)| file.clone()).collect()
}
