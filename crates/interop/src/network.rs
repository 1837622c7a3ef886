//! Networks given as tensors and operators: benchmarks of memory planners.
//!
//! `{"tensors": [{"id", "name", "size", "kind"}], "ops": [{"name", "kind", "ins", "outs", "elementwise"}]}`, operators in
//! schedule order, sizes in bytes. `kind` of a tensor: `input` and `param` are there from the beginning, `output`
//! is handed out at the end.

use std::collections::HashMap;

use serde::{Deserialize, de::IgnoredAny};

use edgecut_graph::{
    Alias, Arg, DType, Graph, InPlacePolicy, Operator, OperatorId, Origin, TensorId, TensorType,
    units::{Bytes, Micros},
};
use edgecut_memory::problem::{MemoryProblem, OperatorRules};

#[derive(Deserialize)]
struct NetworkFile {
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

/// Why a file is not a network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("not a valid network: {0}")]
    Json(#[from] serde_json::Error),
    #[error("operator `{operator}`: tensor {tensor} {what}")]
    Tensor { operator: String, tensor: u64, what: &'static str },
}

impl Network {
    /// # Errors
    /// If the text is not JSON, or an operator reads a tensor that is not defined.
    pub fn parse(text: &[u8]) -> Result<Network, NetworkError> {
        let file: NetworkFile = serde_json::from_slice(text)?;
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
                    return Err(fault(*id, "has two producers"));
                }
                types.push(bytes(tensor));
            }
            let id = graph.add_operator(
                Operator::new(if op.kind.is_empty() { op.name.as_str() } else { op.kind.as_str() }, args)
                    .with_tuple_result(op.outs.len() != 1)
                    .with_label(Some(op.name.as_str().into())),
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

    /// Whether `text` has the form of a network: tensors and operators.
    pub fn is_one(text: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Form {
            tensors: Option<IgnoredAny>,
            ops: Option<IgnoredAny>,
        }
        serde_json::from_slice(text).is_ok_and(|form: Form| form.tensors.is_some() && form.ops.is_some())
    }

    /// Whether `text` is a network whose operators state whether they are element-wise; others of this form are DLMO's.
    pub fn states_elementwise(text: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Form {
            tensors: Option<IgnoredAny>,
            ops: Option<Vec<FormOperator>>,
        }
        #[derive(Deserialize)]
        struct FormOperator {
            elementwise: Option<bool>,
        }
        let states = |ops: &Vec<FormOperator>| ops.iter().any(|op| op.elementwise.is_some());
        let form = serde_json::from_slice(text);
        form.is_ok_and(|form: Form| form.tensors.is_some() && form.ops.as_ref().is_some_and(states))
    }

    /// What is placed and scheduled: operators of 1 µs without workspace.
    pub fn problem(self, policy: InPlacePolicy) -> MemoryProblem {
        let operators = || self.graph.operators();
        let name =
            |(_, operator): (OperatorId, &Operator)| operator.label.as_ref().unwrap_or(&operator.name).to_string();
        let rules = |(id, _): (OperatorId, &Operator)| OperatorRules {
            alias: self.alias(id, policy),
            workspace: Bytes::ZERO,
            time: Micros(1.0),
        };
        let (names, rules) = (operators().map(name).collect(), operators().map(rules).collect());
        MemoryProblem::new(self.graph, names, rules)
    }

    /// How an operator's result may share storage with its operands under a policy.
    pub fn alias(&self, operator: OperatorId, policy: InPlacePolicy) -> Alias {
        match self.elementwise[operator.0 as usize] {
            true => policy.restrict(Alias::InPlace),
            false => Alias::Never,
        }
    }
}
