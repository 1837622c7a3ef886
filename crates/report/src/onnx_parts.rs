//! A plan as ONNX models, one for each stage of each device, with a manifest that says in which order they run: what ONNX
//! Runtime needs to deploy it.

use std::collections::{HashMap, HashSet};

use edgecut_graph::{Graph, Origin, TensorData, TensorId};
use edgecut_onnx::{ExportError, ExportOptions, Exported, export};
use edgecut_plan::{
    DeviceId, Plan,
    stages::{Stage, StageError, stages},
};
use serde::Serialize;
use smol_str::{SmolStr, format_smolstr};

/// Runs the parts one after the other; needs Python with onnxruntime and numpy.
pub const RUNNER: &str = include_str!("runner.py");

/// The models of a plan. Values are wired by name: what one part returns is the input of that name of others.
#[derive(Debug)]
pub struct OnnxParts {
    pub manifest: PartsManifest,
    /// In the order of the manifest.
    pub models: Vec<Exported>,
}

/// How the parts of a plan fit together. They can run one after the other in the order given.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartsManifest {
    /// Names of the model's inputs.
    pub inputs: Vec<String>,
    /// Names of the model's outputs, in order.
    pub outputs: Vec<String>,
    pub parts: Vec<PartFile>,
}

/// One stage of one device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartFile {
    pub file: String,
    pub server: String,
    pub device: String,
    /// Number of the stage on its device.
    pub stage: usize,
    /// In the order of the model.
    pub inputs: Vec<PartValue>,
    pub outputs: Vec<PartValue>,
}

/// An input or output of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartValue {
    pub name: String,
    /// As numpy calls it.
    pub dtype: String,
    pub shape: Vec<u64>,
}

/// Why a plan has no ONNX models.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    #[error(transparent)]
    Stages(#[from] StageError),
    #[error("{file}: {error}")]
    Part { file: String, error: ExportError },
}

/// Writes each stage of `plan`, made for `graph`, as an ONNX model of its own. `content` gives the parameters.
///
/// # Errors
/// If the plan is of another model, or a stage cannot be written as ONNX.
pub fn onnx_parts(
    plan: &Plan,
    graph: &Graph,
    content: &dyn Fn(TensorId) -> Result<Option<TensorData>, String>,
) -> Result<OnnxParts, PartsError> {
    let graph = &with_unique_names(graph);
    let stages = stages(plan, graph)?;
    let (mut parts, mut models) = (Vec::new(), Vec::new());
    let mut counts: HashMap<DeviceId, usize> = HashMap::new();
    for (at, stage) in stages.iter().enumerate() {
        let device = &plan.devices[stage.device.0 as usize];
        let count = counts.entry(stage.device).or_default();
        let part = PartFile {
            file: file_name(at, &device.server, &device.device),
            server: device.server.clone(),
            device: device.device.clone(),
            stage: *count,
            inputs: stage.part.graph.inputs().map(|id| value(&stage.part.graph, id)).collect(),
            outputs: stage.part.graph.outputs.iter().map(|id| value(&stage.part.graph, *id)).collect(),
        };
        *count += 1;
        let whole = |id: TensorId| stage.part.whole_tensor.get(id.0 as usize).copied().unwrap_or(id);
        let content = |id| content(whole(id));
        let model = export(&stage.part.graph, &ExportOptions::new(&content));
        models.push(model.map_err(|error| PartsError::Part { file: part.file.clone(), error })?);
        parts.push(part);
    }
    let name = |id: TensorId| graph.tensor(id).name.to_string();
    let manifest = PartsManifest {
        inputs: read_inputs(graph, &stages).into_iter().map(name).collect(),
        outputs: graph.outputs.iter().map(|id| name(*id)).collect(),
        parts,
    };
    Ok(OnnxParts { manifest, models })
}

/// A tensor with a fixed size, as stages exchange them.
fn value(graph: &Graph, id: TensorId) -> PartValue {
    let tensor = graph.tensor(id);
    let shape = tensor.ty.shape.fixed().map(|dims| dims.to_vec()).unwrap_or_default();
    PartValue { name: tensor.name.to_string(), dtype: tensor.ty.dtype.to_string(), shape }
}

/// The model's inputs that a stage reads.
fn read_inputs(graph: &Graph, stages: &[Stage]) -> Vec<TensorId> {
    let read: HashSet<TensorId> = stages
        .iter()
        .flat_map(|stage| stage.part.graph.inputs().map(|id| stage.part.whole_tensor[id.0 as usize]))
        .collect();
    graph.inputs().filter(|id| read.contains(id)).collect()
}

/// `00-server-device.onnx`, numbered in running order.
fn file_name(at: usize, server: &str, device: &str) -> String {
    format!("{at:02}-{}.onnx", portable(&format!("{server}-{device}")))
}

/// `name` with every character replaced that is not portable in names of files.
pub(crate) fn portable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// `graph` with a name of its own for every tensor: parts are wired by them. Inputs and parameters keep theirs.
fn with_unique_names(graph: &Graph) -> Graph {
    let mut named = graph.clone();
    let is_given = |id: &TensorId| !matches!(graph.tensor(*id).origin, Origin::Operator { .. });
    let mut taken: HashSet<SmolStr> = HashSet::new();
    let (given, made): (Vec<TensorId>, Vec<TensorId>) = graph.tensors().map(|(id, _)| id).partition(is_given);
    for id in given.into_iter().chain(made) {
        let name = graph.tensor(id).name.clone();
        if !taken.insert(name.clone()) && !is_given(&id) {
            let free =
                (2..).map(|number: u32| format_smolstr!("{name}.{number}")).find(|name| taken.insert(name.clone()));
            named.tensor_mut(id).name = free.unwrap_or(name);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator, TensorType};

    #[test]
    fn names_are_made_unique_and_inputs_keep_theirs() {
        let ty = TensorType::of(DType::F32, &[2]);
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        for _ in 0..3 {
            let id = graph.add_operator(Operator::new("nn.relu", [x]), std::slice::from_ref(&ty));
            let made = graph.operator(id).outputs[0];
            graph.tensor_mut(made).name = "x".into();
        }
        let named = with_unique_names(&graph);
        let names: Vec<_> = named.tensors().map(|(_, tensor)| tensor.name.to_string()).collect();
        assert_eq!(names, ["x", "x.2", "x.3", "x.4"]);
    }

    #[test]
    fn file_names_hold_no_separators() {
        assert_eq!(file_name(3, "edge/1", "gpu 0"), "03-edge_1-gpu_0.onnx");
    }
}
