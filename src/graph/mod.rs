//! The computation graph: operators and tensors in single-assignment form.
//!
//! Knows neither Relay text nor what any operator means: names, attributes and types only. `relay` makes
//! graphs, `ops` gives the operators meaning, `plan` and `memory` work on them.

mod attrs;
mod check;
mod constant;
mod contract;
mod copy;
mod dtype;
mod fusion;
mod part;
pub mod query;
mod tensor;
mod types;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

pub use attrs::{Attr, Attrs};
pub use check::GraphError;
pub use constant::attach_constants;
pub use contract::{Contracted, Groups};
pub use dtype::{DType, DTypeError, Exotic};
pub use fusion::{FusionClass, Granularity, fuse};
pub use part::Part;
pub use tensor::{TensorData, TensorError};
pub use types::{Dim, Shape, TensorType, Type};

/// A DAG of operators over tensors.
///
/// Invariants, kept by [`Graph::add_tensor`] and [`Graph::add_operator`] and checked when a graph is read:
/// operators are in TVM's post-order (so every operand is made before it is used), each tensor has at most
/// one producer. Tuples, projections, lets and function literals are gone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "check::Unchecked")]
pub struct Graph {
    tensors: Vec<Tensor>,
    operators: Vec<Operator>,
    /// What the model returns, nested tuples flattened left to right.
    pub outputs: Vec<TensorId>,
}

/// Index of a tensor in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorId(pub u32);

/// Index of an operator in its graph, which is also its place in program order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperatorId(pub u32);

/// A value: what it is called, its type, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// As printed after `%` in the text for inputs and parameters; made up for the rest.
    pub name: SmolStr,
    pub ty: TensorType,
    pub origin: Origin,
}

/// Where a tensor's content comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Origin {
    /// Given anew for every run.
    Input,
    /// A weight: given once, from a `.params` file or generated from its name.
    Parameter,
    /// A weight whose content stands in the model.
    Constant(TensorData),
    /// Output number `index` of an operator.
    Operator { operator: OperatorId, index: u32 },
}

/// A vertex: one Relay call after inlining.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operator {
    /// Relay's name, such as `nn.conv2d`.
    pub name: SmolStr,
    pub attrs: Attrs,
    pub args: Vec<Arg>,
    pub outputs: Vec<TensorId>,
    /// Whether Relay types the result as a tuple (`split`, `nn.batch_norm`) even if it has one field.
    pub tuple_result: bool,
    /// The `fn(… Primitive=1 / Composite="…" / Compiler="…")` the call stood in, if any.
    pub label: Option<SmolStr>,
    /// Where the call stands in the text it was read from.
    pub place: Option<Place>,
}

/// One operand: a tensor, or a tuple of tensors (`concatenate`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arg {
    Tensor(TensorId),
    Tuple(Vec<TensorId>),
}

/// Line and column in the text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

impl Arg {
    pub fn tensors(&self) -> &[TensorId] {
        match self {
            Arg::Tensor(tensor) => std::slice::from_ref(tensor),
            Arg::Tuple(tensors) => tensors,
        }
    }
}

impl Operator {
    /// All operands, tuples flattened.
    pub fn operands(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.args.iter().flat_map(|arg| arg.tensors().iter().copied())
    }

    /// Reads every operand where `at` has it.
    pub fn redirect(&mut self, at: impl Fn(TensorId) -> TensorId) {
        let place = |tensor: &mut TensorId| *tensor = at(*tensor);
        for arg in &mut self.args {
            match arg {
                Arg::Tensor(tensor) => place(tensor),
                Arg::Tuple(tensors) => tensors.iter_mut().for_each(place),
            }
        }
    }
}

impl Graph {
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Makes room for this many more operators and tensors.
    pub fn reserve(&mut self, operators: usize, tensors: usize) {
        self.operators.reserve_exact(operators);
        self.tensors.reserve_exact(tensors);
    }

    /// Adds an input, parameter or constant.
    pub fn add_tensor(&mut self, name: impl Into<SmolStr>, ty: TensorType, origin: Origin) -> TensorId {
        debug_assert!(!matches!(origin, Origin::Operator { .. }), "add_operator makes an operator's outputs");
        self.push_tensor(Tensor { name: name.into(), ty, origin })
    }

    /// Adds an operator after all others, with one new tensor for each of `types`.
    ///
    /// `operator.outputs` is filled in here. The operands must be tensors of this graph.
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

    /// All operators, in program order.
    pub fn operators(&self) -> impl ExactSizeIterator<Item = (OperatorId, &Operator)> {
        self.operators.iter().enumerate().map(|(i, op)| (OperatorId(i as u32), op))
    }

    pub fn tensors(&self) -> impl ExactSizeIterator<Item = (TensorId, &Tensor)> {
        self.tensors.iter().enumerate().map(|(i, tensor)| (TensorId(i as u32), tensor))
    }

    /// Inputs in the order in which the model declares them.
    pub fn inputs(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.tensors().filter(|(_, t)| matches!(t.origin, Origin::Input)).map(|(id, _)| id)
    }

    /// Parameters and constants in the order in which the model declares them.
    pub fn parameters(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.tensors().filter(|(_, t)| matches!(t.origin, Origin::Parameter | Origin::Constant(_))).map(|(id, _)| id)
    }

    /// The operator that makes `tensor`, unless it comes from outside.
    pub fn producer(&self, tensor: TensorId) -> Option<OperatorId> {
        match self.tensor(tensor).origin {
            Origin::Operator { operator, .. } => Some(operator),
            _ => None,
        }
    }

    /// For every tensor the operators that read it, each once, in program order.
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

    /// The type of an operator's result, as Relay has it.
    pub fn result_type(&self, operator: &Operator) -> Type {
        let mut types = operator.outputs.iter().map(|t| Type::Tensor(self.tensor(*t).ty.clone()));
        match (operator.tuple_result, operator.outputs.len()) {
            (false, 1) => types.next().unwrap_or(Type::Tuple(Vec::new())),
            _ => Type::Tuple(types.collect()),
        }
    }
}

/// Appends to a vector that grows by a quarter: a graph is kept long, and most of what it takes are these.
fn push_tight<T>(all: &mut Vec<T>, one: T) {
    if all.len() == all.capacity() {
        all.reserve_exact(16 + all.len() / 4);
    }
    all.push(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn relu(of: TensorId) -> Operator {
        Operator {
            name: "nn.relu".into(),
            attrs: Attrs::new(),
            args: vec![Arg::Tensor(of)],
            outputs: Vec::new(),
            tuple_result: false,
            label: None,
            place: None,
        }
    }

    #[test]
    fn operators_make_their_tensors() {
        let mut graph = Graph::new();
        let ty = TensorType::of(DType::F32, &[1, 3]);
        let x = graph.add_tensor("x", ty.clone(), Origin::Input);
        let a = graph.add_operator(relu(x), std::slice::from_ref(&ty));
        let y = graph.operator(a).outputs[0];
        let b = graph.add_operator(relu(y), &[ty]);
        assert_eq!(graph.producer(y), Some(a));
        assert_eq!(graph.consumers()[y.0 as usize], vec![b]);
        assert_eq!(graph.result_type(graph.operator(b)).to_string(), "float32[1,3]");
        assert_eq!(graph.inputs().collect::<Vec<_>>(), vec![x]);
    }
}
