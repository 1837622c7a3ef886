//! The vertices of a graph: calls of operators.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::{
    attrs::{Attr, Attrs},
    id::TensorId,
};

/// One Relay call after inlining. Built from [`Operator::new`] and the methods that follow it.
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
}

/// One operand: a tensor, or a tuple of tensors (`concatenate`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arg {
    Tensor(TensorId),
    Tuple(Vec<TensorId>),
}

/// Line and column in a text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLocation {
    pub line: u32,
    pub column: u32,
}

impl Arg {
    /// The tensors of the operand, in order.
    pub fn tensors(&self) -> &[TensorId] {
        match self {
            Arg::Tensor(tensor) => std::slice::from_ref(tensor),
            Arg::Tuple(tensors) => tensors,
        }
    }
}

impl From<TensorId> for Arg {
    fn from(tensor: TensorId) -> Arg {
        Arg::Tensor(tensor)
    }
}

impl From<Vec<TensorId>> for Arg {
    fn from(fields: Vec<TensorId>) -> Arg {
        Arg::Tuple(fields)
    }
}

/// The attribute of an opaque operator that says why it is one.
const OPAQUE_REASON: &str = "onnx.reason";

impl Operator {
    /// Why no defined operator expresses this one, where the reader of its file says so.
    pub fn opaque_reason(&self) -> Option<&str> {
        match self.attrs.get(OPAQUE_REASON) {
            Some(Attr::Str(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Marks the operator as one that no defined operator expresses, for this `reason`.
    pub fn with_opaque_reason(mut self, reason: impl Into<SmolStr>) -> Operator {
        self.attrs.set(OPAQUE_REASON, Attr::Str(reason.into()));
        self
    }

    /// A call of `name` on `args`, without attributes; its result is one tensor.
    pub fn new<A: Into<Arg>>(name: impl Into<SmolStr>, args: impl IntoIterator<Item = A>) -> Operator {
        Operator {
            name: name.into(),
            attrs: Attrs::new(),
            args: args.into_iter().map(Into::into).collect(),
            outputs: Vec::new(),
            tuple_result: false,
            label: None,
            location: None,
            layer: None,
        }
    }

    pub fn with_attrs(self, attrs: Attrs) -> Operator {
        Operator { attrs, ..self }
    }

    pub fn with_tuple_result(self, tuple_result: bool) -> Operator {
        Operator { tuple_result, ..self }
    }

    pub fn with_label(self, label: Option<SmolStr>) -> Operator {
        Operator { label, ..self }
    }

    pub fn with_location(self, location: Option<SourceLocation>) -> Operator {
        Operator { location, ..self }
    }

    pub fn with_layer(self, layer: Option<SmolStr>) -> Operator {
        Operator { layer, ..self }
    }

    /// All operands, tuples flattened.
    pub fn operands(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.args.iter().flat_map(|arg| arg.tensors().iter().copied())
    }

    /// Replaces every operand by its image under `map`.
    pub(crate) fn redirect(&mut self, map: impl Fn(TensorId) -> TensorId) {
        let replace = |tensor: &mut TensorId| *tensor = map(*tensor);
        for arg in &mut self.args {
            match arg {
                Arg::Tensor(tensor) => replace(tensor),
                Arg::Tuple(tensors) => tensors.iter_mut().for_each(replace),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_flattened_and_redirected() {
        let ids = [3, 1, 4, 1].map(TensorId);
        let mut operator = Operator::new("f", [Arg::Tensor(ids[0]), Arg::Tuple(ids[1..].to_vec())]);
        assert_eq!(operator.operands().collect::<Vec<_>>(), ids);
        operator.redirect(|t| TensorId(t.0 + 10));
        assert_eq!(operator.operands().collect::<Vec<_>>(), ids.map(|t| TensorId(t.0 + 10)));
    }
}
