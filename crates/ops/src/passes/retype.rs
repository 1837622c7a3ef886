//! Repeats type inference on a graph, after unknown dimensions are bound or operand values become known.

use std::{collections::HashMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{Call, TypeError, lookup};
use edgecut_graph::{Arg, Dim, Graph, OperatorId, Origin, TensorData, TensorId, TensorType, Type};

/// A size for unknown dimensions (`?`) of a model, as in `--bind-dim`: `8` binds every unknown dimension of every input,
/// `data:0=8` the first one of `data`, `batch=8` those that an ONNX file calls `batch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum BindDim {
    All(u64),
    One { tensor: SmolStr, axis: usize, size: u64 },
    Symbol { name: SmolStr, size: u64 },
}

impl BindDim {
    /// `size` for `axis` of `tensor`: by the name that the file gives the dimension, if it does.
    pub fn of(tensor: &SmolStr, axis: usize, symbol: Option<&str>, size: u64) -> BindDim {
        match symbol {
            Some(name) => BindDim::Symbol { name: name.into(), size },
            None => BindDim::One { tensor: tensor.clone(), axis, size },
        }
    }
}

impl fmt::Display for BindDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindDim::All(size) => write!(f, "{size}"),
            BindDim::One { tensor, axis, size } => write!(f, "{tensor}:{axis}={size}"),
            BindDim::Symbol { name, size } => write!(f, "{name}={size}"),
        }
    }
}

impl From<BindDim> for String {
    fn from(bind: BindDim) -> String {
        bind.to_string()
    }
}

impl TryFrom<String> for BindDim {
    type Error = BindDimError;
    fn try_from(text: String) -> Result<BindDim, BindDimError> {
        text.parse()
    }
}

/// A `--bind-dim` that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a dimension binding: expected a size, such as 8, NAME:AXIS=SIZE, such as data:0=8, or SYMBOL=SIZE, such as batch=8; several sizes are joined by commas, as in batch=1,8"
)]
pub struct BindDimError(pub(super) String);

impl FromStr for BindDim {
    type Err = BindDimError;
    fn from_str(text: &str) -> Result<BindDim, BindDimError> {
        let named = || {
            let (place, size) = text.rsplit_once('=')?;
            let size = size.trim().parse().ok()?;
            let axis = place.rsplit_once(':').and_then(|(tensor, axis)| Some((tensor, axis.parse().ok()?)));
            match axis {
                Some((tensor, axis)) => Some(BindDim::One { tensor: tensor.into(), axis, size }),
                None if place.is_empty() => None,
                None => Some(BindDim::Symbol { name: place.into(), size }),
            }
        };
        text.parse().ok().map(BindDim::All).or_else(named).ok_or_else(|| BindDimError(text.to_string()))
    }
}

/// The type `ty` of the input `name` with its unknown dimensions bound.
pub fn bind(binds: &[BindDim], name: &str, ty: &Type) -> Type {
    match ty {
        Type::Tensor(ty) => Type::Tensor(bind_tensor(binds, name, ty)),
        Type::Tuple(fields) => {
            let fields = fields.iter().enumerate();
            Type::Tuple(fields.map(|(i, ty)| bind(binds, &format!("{name}.{i}"), ty)).collect())
        }
    }
}

/// Appends the unknown dimensions (tensor, axis) of the input `name` of type `ty`.
pub fn unknown_dims(name: &str, ty: &Type, found: &mut Vec<(SmolStr, usize)>) {
    match ty {
        Type::Tensor(ty) => {
            let unknown = ty.shape.iter().enumerate().filter(|(_, dim)| **dim == Dim::Any);
            found.extend(unknown.map(|(axis, _)| (SmolStr::new(name), axis)));
        }
        Type::Tuple(fields) => {
            fields.iter().enumerate().for_each(|(i, ty)| unknown_dims(&format!("{name}.{i}"), ty, found));
        }
    }
}

fn bind_tensor(binds: &[BindDim], name: &str, ty: &TensorType) -> TensorType {
    let mut bound = ty.clone();
    if binds.is_empty() || !ty.shape.contains(&Dim::Any) {
        return bound;
    }
    for (at, dim) in bound.shape.iter_mut().enumerate().filter(|(_, dim)| **dim == Dim::Any) {
        if let Some(size) = bound_size(binds, name, at, None) {
            *dim = Dim::Known(size);
        }
    }
    bound
}

/// The size of the unknown dimension `axis` of the input `name`, which the file calls `symbol`.
pub fn bound_size(binds: &[BindDim], name: &str, axis: usize, symbol: Option<&str>) -> Option<u64> {
    let one = || {
        binds.iter().find_map(|bind| match bind {
            BindDim::One { tensor, axis: at, size } if tensor == name && *at == axis => Some(*size),
            _ => None,
        })
    };
    let by_symbol = || {
        binds.iter().find_map(|bind| match bind {
            BindDim::Symbol { name, size } if Some(name.as_str()) == symbol => Some(*size),
            _ => None,
        })
    };
    let all = || binds.iter().find_map(|bind| if let BindDim::All(size) = bind { Some(*size) } else { None });
    one().or_else(by_symbol).or_else(all)
}

/// Repeats type inference on `graph` with the unknown dimensions of its inputs bound.
///
/// # Errors
/// If an operator does not accept its operands.
pub fn retype(graph: &Graph, binds: &[BindDim]) -> Result<Graph, TypeError> {
    let mut graph = graph.clone();
    for input in graph.inputs().collect::<Vec<_>>() {
        let tensor = graph.tensor_mut(input);
        tensor.ty = bind_tensor(binds, &tensor.name, &tensor.ty);
    }
    retype_with(&graph, &HashMap::new())
}

/// Repeats type inference on `graph` with known tensor values: constants, and `values`, which also determine the types of
/// their tensors. Unknown operators keep their types.
///
/// # Errors
/// If an operator does not accept its operands.
fn retype_with(graph: &Graph, values: &HashMap<TensorId, TensorData>) -> Result<Graph, TypeError> {
    let mut graph = graph.clone();
    let operators = 0..graph.operators().len() as u32;
    for (tensor, value) in values {
        graph.tensor_mut(*tensor).ty = value.ty();
    }
    for id in operators.map(OperatorId) {
        let operator = graph.operator(id);
        let Some(def) = lookup(&operator.name) else { continue };
        let args = graph.arg_types(operator);
        let known: Vec<Option<&TensorData>> = operator.args.iter().map(|arg| known(&graph, values, arg)).collect();
        let ty = (def.infer)(&Call { def, attrs: &operator.attrs, args: &args, values: &known })?;
        let types: Vec<TensorType> = ty.tensors().into_iter().cloned().collect();
        let outputs = operator.outputs.clone();
        if types.len() != outputs.len() {
            let what = format!("has {} results, expected {}", types.len(), outputs.len());
            return Err(TypeError { op: operator.name.clone(), what });
        }
        for (output, ty) in outputs.into_iter().zip(types).filter(|(output, _)| !values.contains_key(output)) {
            graph.tensor_mut(output).ty = ty;
        }
    }
    Ok(graph)
}

fn known<'a>(graph: &'a Graph, values: &'a HashMap<TensorId, TensorData>, arg: &Arg) -> Option<&'a TensorData> {
    let Arg::Tensor(tensor) = arg else { return None };
    match &graph.tensor(*tensor).origin {
        Origin::Constant(data) => Some(data),
        _ => values.get(tensor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::{DType, Operator};

    #[test]
    fn bound_dimensions_propagate() {
        let unknown = TensorType::new(DType::F32, [Dim::Any, Dim::Known(4)].into_iter().collect());
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", unknown.clone(), Origin::Input);
        let relu = Operator::new("nn.relu", [x]);
        let id = graph.add_operator(relu, &[unknown]);
        let out = graph.operator(id).outputs[0];
        for (bind, want) in [("8", "float32[8,4]"), ("x:0=3", "float32[3,4]"), ("y:0=3", "float32[?,4]")] {
            let bound = retype(&graph, &[bind.parse().unwrap()]).unwrap();
            assert_eq!(bound.tensor(out).ty.to_string(), want, "{bind}");
        }
        assert_eq!("a:b=3".parse(), Ok(BindDim::Symbol { name: "a:b".into(), size: 3 }));
        assert!("x=".parse::<BindDim>().is_err() && "=3".parse::<BindDim>().is_err());
    }
}
