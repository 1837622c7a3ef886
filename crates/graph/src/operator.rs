//! How operators are built and read.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::{
    arg::{Arg, SourceLocation},
    attrs::{Attr, Attrs},
    graph::{Graph, Operator},
    id::TensorId,
};

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

    /// Whether the operator is kept as an ONNX file has it: an opaque or a composite one.
    pub fn is_kept_as_read(&self) -> bool {
        self.decomposition.is_some() || self.opaque_reason().is_some()
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
            decomposition: None,
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

    /// The operator as a composite one that computes what `decomposition` does.
    pub fn with_decomposition(self, decomposition: Arc<Graph>) -> Operator {
        Operator { decomposition: Some(decomposition), ..self }
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
