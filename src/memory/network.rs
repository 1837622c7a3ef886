//! Networks given as bare tensors and operators: what memory planners are compared on.
//!
//! `{"tensors": [{"id", "name", "size", "kind"}], "ops": [{"name", "kind", "ins", "outs", "elementwise"}]}`, operators in
//! schedule order, sizes in bytes. `kind` of a tensor: `input` and `param` are there from the beginning, `output`
//! is handed out at the end.

use std::collections::HashMap;

use serde::Deserialize;

use super::Reuse;
use crate::graph::{Arg, Attrs, DType, Graph, Operator, OperatorId, Origin, TensorId, TensorType};

#[derive(Deserialize)]
struct File {
    tensors: Vec<FileTensor>,
    ops: Vec<FileOperator>,
}

#[derive(Deserialize)]
struct FileTensor {
    id: u64,
    #[serde(default)]
    name: Option<String>,
    size: u64,
    kind: String,
}

#[derive(Deserialize)]
struct FileOperator {
    name: String,
    #[serde(default)]
    kind: String,
    ins: Vec<u64>,
    outs: Vec<u64>,
    #[serde(default)]
    elementwise: bool,
}

/// A network as a graph, with what may be overwritten.
#[derive(Debug)]
pub struct Network {
    pub graph: Graph,
    elementwise: Vec<bool>,
}

/// Whose bytes an element-wise operator may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InPlace {
    /// Those of any operand that dies.
    #[default]
    Any,
    /// Only the first operand's, and only if nobody else reads it: Aidge's rule.
    First,
    Never,
}

/// Why a file is no network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("no JSON of the expected form: {0}")]
    Json(#[from] serde_json::Error),
    #[error("operator `{operator}`: tensor {tensor} {what}")]
    Tensor { operator: String, tensor: u64, what: &'static str },
}

impl Network {
    /// # Errors
    /// If the text is no JSON, or an operator reads what is not there.
    pub fn parse(text: &[u8]) -> Result<Network, NetworkError> {
        let file: File = serde_json::from_slice(text)?;
        let tensors: HashMap<u64, &FileTensor> = file.tensors.iter().map(|t| (t.id, t)).collect();
        let made: HashMap<u64, ()> = file.ops.iter().flat_map(|op| &op.outs).map(|id| (*id, ())).collect();
        let mut graph = Graph::new();
        let mut known: HashMap<u64, TensorId> = HashMap::new();
        let bytes = |tensor: &FileTensor| TensorType::of(DType::U8, &[tensor.size]);
        let name = |tensor: &FileTensor| tensor.name.clone().unwrap_or_else(|| tensor.id.to_string());
        for tensor in file.tensors.iter().filter(|t| !made.contains_key(&t.id)) {
            let origin = if tensor.kind == "param" { Origin::Parameter } else { Origin::Input };
            known.insert(tensor.id, graph.add_tensor(name(tensor), bytes(tensor), origin));
        }
        for op in &file.ops {
            let fault = |tensor, what| NetworkError::Tensor { operator: op.name.clone(), tensor, what };
            let operand = |id: &u64| known.get(id).copied().ok_or_else(|| fault(*id, "is not made before it is read"));
            let args = op.ins.iter().map(|id| operand(id).map(Arg::Tensor)).collect::<Result<Vec<_>, _>>()?;
            let mut types = Vec::new();
            for id in &op.outs {
                let tensor = tensors.get(id).ok_or_else(|| fault(*id, "is not among the tensors"))?;
                if known.contains_key(id) {
                    return Err(fault(*id, "is made twice"));
                }
                types.push(bytes(tensor));
            }
            let id = graph.add_operator(
                Operator {
                    name: if op.kind.is_empty() { op.name.as_str().into() } else { op.kind.as_str().into() },
                    attrs: Attrs::new(),
                    args,
                    outputs: Vec::new(),
                    tuple_result: op.outs.len() != 1,
                    label: Some(op.name.as_str().into()),
                    place: None,
                },
                &types,
            );
            for (output, id) in graph.operator(id).outputs.clone().into_iter().zip(&op.outs) {
                graph.tensor_mut(output).name = name(tensors[id]).into();
                known.insert(*id, output);
                if tensors[id].kind == "output" {
                    graph.outputs.push(output);
                }
            }
        }
        Ok(Network { graph, elementwise: file.ops.iter().map(|op| op.elementwise).collect() })
    }

    /// How an operator's output may use an operand's bytes under a rule.
    pub fn reuse(&self, operator: OperatorId, rule: InPlace) -> Reuse {
        match (self.elementwise[operator.0 as usize], rule) {
            (false, _) | (_, InPlace::Never) => Reuse::Never,
            (_, InPlace::Any) => Reuse::InPlace,
            (_, InPlace::First) => Reuse::First,
        }
    }
}
