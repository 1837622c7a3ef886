//! The graph: operators over tensors in single-assignment form. [`Operator`] is defined here because a composite operator
//! has a graph.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

use crate::{
    arg::{Arg, SourceLocation},
    attrs::Attrs,
    id::{OperatorId, TensorId},
    tensor::TensorData,
    types::{TensorType, Type},
    units::Bytes,
};

/// A DAG of operators over tensors.
///
/// Invariants, kept by [`Graph::add_tensor`] and [`Graph::add_operator`] and validated at deserialization: operators
/// are in TVM's post-order (so every operand is defined before it is used), and each tensor has at most one producer.
/// There are no tuples, projections, lets or function literals.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Graph {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) operators: Vec<Operator>,
    /// The results of the model, nested tuples flattened left to right.
    pub outputs: Vec<TensorId>,
}

/// A value: its name, type and origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// As printed after `%` in the text for inputs and parameters; generated for operator outputs.
    pub name: SmolStr,
    pub ty: TensorType,
    pub origin: Origin,
}

/// The source of a tensor's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Origin {
    /// An argument of every run.
    Input,
    /// A weight, loaded once: from a `.params` file, or generated from its name.
    Parameter,
    /// A weight whose content is part of the model.
    Constant(TensorData),
    /// Output number `index` of an operator.
    Operator { operator: OperatorId, index: u32 },
}

/// A vertex: one Relay call after inlining, or one operator of an ONNX file. Built from [`Operator::new`] and the methods
/// that follow it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Operator {
    /// Relay's name, such as `nn.conv2d`.
    pub name: SmolStr,
    pub attrs: Attrs,
    pub args: Vec<Arg>,
    /// Filled in by [`Graph::add_operator`](crate::Graph::add_operator).
    pub outputs: Vec<TensorId>,
    /// Whether Relay types the result as a tuple (`split`, `nn.batch_norm`), even one of a single field.
    pub tuple_result: bool,
    /// The `Primitive`, `Composite` or `Compiler` attribute of the function literal that contained the call.
    pub label: Option<SmolStr>,
    /// Position of the call in the text it was read from.
    #[serde(rename = "place")]
    pub location: Option<SourceLocation>,
    /// The name of its layer, where the model says it; see [`Graph::layer`](crate::Graph::layer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<SmolStr>,
    /// For a composite operator, its decomposition into operators with definitions: a graph whose inputs are the
    /// operator's operands in order, and whose outputs are its results. It has constants, no parameters, and no
    /// composites.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "serialize_shared",
        deserialize_with = "deserialize_shared"
    )]
    pub decomposition: Option<Arc<Graph>>,
}

fn serialize_shared<S: Serializer>(graph: &Option<Arc<Graph>>, serializer: S) -> Result<S::Ok, S::Error> {
    graph.as_deref().serialize(serializer)
}

fn deserialize_shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Graph>>, D::Error> {
    Ok(Option::<Graph>::deserialize(deserializer)?.map(Arc::new))
}

impl Graph {
    /// A graph without operators and tensors.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Reserves capacity for this many more operators and tensors.
    pub fn reserve(&mut self, operators: usize, tensors: usize) {
        self.operators.reserve_exact(operators);
        self.tensors.reserve_exact(tensors);
    }

    /// Adds an input, parameter or constant.
    pub fn add_tensor(&mut self, name: impl Into<SmolStr>, ty: TensorType, origin: Origin) -> TensorId {
        debug_assert!(!matches!(origin, Origin::Operator { .. }), "outputs are added by add_operator");
        self.push_tensor(Tensor { name: name.into(), ty, origin })
    }

    /// Appends an operator, with one new output tensor for each of `types`. Its operands must be tensors of this graph.
    pub fn add_operator(&mut self, mut operator: Operator, types: &[TensorType]) -> OperatorId {
        debug_assert!(operator.operands().all(|t| (t.0 as usize) < self.tensors.len()));
        let id = OperatorId(self.operators.len() as u32);
        operator.outputs = (0u32..)
            .zip(types)
            .map(|(index, ty)| {
                let name = match index {
                    0 => SmolStr::new(format!("{}_{}", operator.name, id.0)),
                    _ => SmolStr::new(format!("{}_{}.{index}", operator.name, id.0)),
                };
                self.push_tensor(Tensor { name, ty: ty.clone(), origin: Origin::Operator { operator: id, index } })
            })
            .collect();
        push_tight(&mut self.operators, operator);
        id
    }

    fn push_tensor(&mut self, tensor: Tensor) -> TensorId {
        push_tight(&mut self.tensors, tensor);
        TensorId(self.tensors.len() as u32 - 1)
    }

    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    pub fn tensor_mut(&mut self, id: TensorId) -> &mut Tensor {
        &mut self.tensors[id.0 as usize]
    }

    pub fn operator(&self, id: OperatorId) -> &Operator {
        &self.operators[id.0 as usize]
    }

    pub fn operator_mut(&mut self, id: OperatorId) -> &mut Operator {
        &mut self.operators[id.0 as usize]
    }

    /// All operators in program order.
    pub fn operators(&self) -> impl ExactSizeIterator<Item = (OperatorId, &Operator)> {
        self.operators.iter().enumerate().map(|(i, op)| (OperatorId(i as u32), op))
    }

    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (TensorId, &Tensor)> {
        self.tensors.iter().enumerate().map(|(i, tensor)| (TensorId(i as u32), tensor))
    }

    /// Inputs in declaration order.
    pub fn inputs(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.tensors().filter(|(_, t)| matches!(t.origin, Origin::Input)).map(|(id, _)| id)
    }

    /// Parameters and constants in declaration order.
    pub fn parameters(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.tensors().filter(|(_, t)| matches!(t.origin, Origin::Parameter | Origin::Constant(_))).map(|(id, _)| id)
    }

    /// The operator that produces `tensor`; `None` for inputs, parameters and constants.
    pub fn producer(&self, tensor: TensorId) -> Option<OperatorId> {
        match self.tensor(tensor).origin {
            Origin::Operator { operator, .. } => Some(operator),
            _ => None,
        }
    }

    /// Size of the largest result of `operators`: all of it exists once that is computed.
    pub fn largest_result(&self, operators: impl IntoIterator<Item = OperatorId>) -> Bytes {
        let results = operators.into_iter().flat_map(|id| &self.operator(id).outputs);
        results.filter_map(|id| self.tensor(*id).ty.bytes()).max().unwrap_or_default()
    }

    /// For every tensor, the operators that read it, without duplicates, in program order.
    pub fn consumers(&self) -> Vec<Vec<OperatorId>> {
        let mut found: Vec<Vec<OperatorId>> = vec![Vec::new(); self.tensors.len()];
        for (id, operator) in self.operators() {
            for operand in operator.operands() {
                let list = &mut found[operand.0 as usize];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        found
    }

    /// The types of an operator's arguments, tuples as tuples.
    pub fn arg_types(&self, operator: &Operator) -> Vec<Type> {
        let ty = |t: &TensorId| Type::Tensor(self.tensor(*t).ty.clone());
        operator
            .args
            .iter()
            .map(|arg| match arg {
                Arg::Tensor(tensor) => ty(tensor),
                Arg::Tuple(tensors) => Type::Tuple(tensors.iter().map(ty).collect()),
            })
            .collect()
    }

    /// The type of an operator's result in Relay: a tuple for several outputs.
    pub fn result_type(&self, operator: &Operator) -> Type {
        let mut types = operator.outputs.iter().map(|t| Type::Tensor(self.tensor(*t).ty.clone()));
        match (operator.tuple_result, operator.outputs.len()) {
            (false, 1) => types.next().unwrap_or(Type::Tuple(Vec::new())),
            _ => Type::Tuple(types.collect()),
        }
    }
}

/// Appends to a vector that grows by a quarter instead of doubling: these vectors are most of a graph's memory.
fn push_tight<T>(all: &mut Vec<T>, one: T) {
    if all.len() == all.capacity() {
        all.reserve_exact(16 + all.len() / 4);
    }
    all.push(one);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn operators_own_their_outputs() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[1, 3]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let a = graph.add_operator(Operator::new("nn.relu", [x]), std::slice::from_ref(&ty));
        let y = graph.operator(a).outputs[0];
        let b = graph.add_operator(Operator::new("nn.relu", [y]), &[ty]);
        assert_eq!(graph.producer(y), Some(a));
        assert_eq!(graph.consumers()[y.0 as usize], vec![b]);
        assert_eq!(graph.result_type(graph.operator(b)).to_string(), "float32[1,3]");
        assert_eq!(graph.inputs().collect::<Vec<_>>(), vec![x]);
    }
}
