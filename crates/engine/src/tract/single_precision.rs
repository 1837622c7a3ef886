//! Half-precision graphs, computed in single precision: most processors emulate half-precision arithmetic, and tract
//! has few kernels for it. Weights are converted when they are loaded; operands and results of a step stay in half
//! precision.

use std::collections::HashMap;

use edgecut_graph::{Attr, DType, Graph, Operator, TensorId, TensorType};

/// A graph in single precision.
pub(super) struct SinglePrecision {
    pub graph: Graph,
    /// For each tensor of `graph` without producer, the tensor of the original graph.
    pub original: Vec<TensorId>,
}

/// Operators that depend on the element type itself: they keep half precision.
const BY_TYPE: &[&str] = &["cast", "cast_like", "reinterpret"];

/// Operators of several steps, whose results depend on how each of these is rounded.
const BY_ROUNDING: &[&str] = &["mod", "floor_mod", "floor_divide", "trunc_mod", "trunc_divide"];

/// `graph` in single precision; `None` if no operator has half-precision operands or results that can be replaced.
pub(super) fn in_single_precision(graph: &Graph) -> Option<SinglePrecision> {
    let is_half = |tensor: TensorId| graph.tensor(tensor).ty.dtype == DType::F16;
    let is_replaced = |operator: &Operator| {
        !keeps_half(operator) && operator.operands().chain(operator.outputs.iter().copied()).any(is_half)
    };
    if !graph.operators().any(|(_, operator)| is_replaced(operator)) {
        return None;
    }
    let mut writer = Writer { graph: Graph::new(), versions: vec![Versions::default(); graph.tensors().len()] };
    let mut original = Vec::new();
    for (id, tensor) in graph.tensors().filter(|(id, _)| graph.producer(*id).is_none()) {
        let new = writer.graph.add_tensor(tensor.name.clone(), tensor.ty.clone(), tensor.origin.clone());
        original.push(id);
        writer.versions[id.0 as usize] = Versions { as_read: Some(new), single: None };
    }
    for (id, operator) in graph.operators() {
        let is_kept = !is_replaced(operator);
        let mut read = |tensor: TensorId| {
            if is_kept || !is_half(tensor) { writer.as_read(graph, tensor) } else { writer.single(graph, tensor) }
        };
        let operands: HashMap<TensorId, TensorId> = operator.operands().map(|tensor| (tensor, read(tensor))).collect();
        let new = writer.graph.copy_operator(graph, id, |tensor| operands[&tensor]);
        let outputs = writer.graph.operator(new).outputs.clone();
        if !is_kept {
            let copy = writer.graph.operator_mut(new);
            copy.attrs = copy.attrs.iter().map(|(key, value)| (key.into(), widened(value))).collect();
            for (output, _) in outputs.iter().zip(&operator.outputs).filter(|(_, old)| is_half(**old)) {
                writer.graph.tensor_mut(*output).ty.dtype = DType::F32;
            }
        }
        for (old, new) in operator.outputs.iter().zip(outputs) {
            writer.versions[old.0 as usize] = match !is_kept && is_half(*old) {
                true => Versions { as_read: None, single: Some(new) },
                false => Versions { as_read: Some(new), single: None },
            };
        }
    }
    writer.graph.outputs = graph.outputs.iter().map(|output| writer.as_read(graph, *output)).collect();
    Some(SinglePrecision { graph: writer.graph, original })
}

/// Whether an operator keeps its operands' and results' types.
fn keeps_half(operator: &Operator) -> bool {
    [BY_TYPE, BY_ROUNDING].iter().any(|names| names.contains(&operator.name.as_str()))
        || operator.name.starts_with("qnn.")
}

/// An attribute with single in place of half precision.
fn widened(value: &Attr) -> Attr {
    match value {
        Attr::Str(text) if text == "float16" => Attr::Str("float32".into()),
        other => other.clone(),
    }
}

/// The tensors that stand for one of the original graph.
#[derive(Debug, Clone, Default)]
struct Versions {
    /// Of its own type.
    as_read: Option<TensorId>,
    single: Option<TensorId>,
}

struct Writer {
    graph: Graph,
    /// By tensor of the original graph.
    versions: Vec<Versions>,
}

impl Writer {
    fn as_read(&mut self, original: &Graph, tensor: TensorId) -> TensorId {
        let Versions { as_read, single } = self.versions[tensor.0 as usize];
        let found = as_read.or_else(|| Some(self.cast(original, tensor, single?, DType::F16))).unwrap_or(tensor);
        self.versions[tensor.0 as usize].as_read = Some(found);
        found
    }

    fn single(&mut self, original: &Graph, tensor: TensorId) -> TensorId {
        let Versions { as_read, single } = self.versions[tensor.0 as usize];
        let found = single.or_else(|| Some(self.cast(original, tensor, as_read?, DType::F32))).unwrap_or(tensor);
        self.versions[tensor.0 as usize].single = Some(found);
        found
    }

    fn cast(&mut self, original: &Graph, tensor: TensorId, from: TensorId, to: DType) -> TensorId {
        let attrs = [("dtype".into(), Attr::Str(to.to_string().into()))].into_iter().collect();
        let ty = TensorType::new(to, original.tensor(tensor).ty.shape.clone());
        let id = self.graph.add_operator(Operator::new("cast", [from]).with_attrs(attrs), &[ty]);
        self.graph.operator(id).outputs[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgecut_graph::Origin;

    #[test]
    fn a_chain_is_converted_at_its_ends() {
        let mut graph = Graph::new();
        let half = TensorType::of(DType::F16, &[4]);
        let x = graph.add_tensor("x", half.clone(), Origin::Input);
        let w = graph.add_tensor("w", half.clone(), Origin::Parameter);
        let id = graph.add_operator(Operator::new("multiply", [x, w]), std::slice::from_ref(&half));
        let product = graph.operator(id).outputs[0];
        let id = graph.add_operator(Operator::new("tanh", [product]), std::slice::from_ref(&half));
        graph.outputs = graph.operator(id).outputs.clone();
        let made = in_single_precision(&graph).unwrap();
        let names: Vec<&str> = made.graph.operators().map(|(_, operator)| operator.name.as_str()).collect();
        assert_eq!(names, ["cast", "cast", "multiply", "tanh", "cast"]);
        assert_eq!(made.graph.tensor(made.graph.outputs[0]).ty, half);
        assert_eq!(made.original, [x, w]);
        let single = TensorType::of(DType::F32, &[4]);
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", single.clone(), Origin::Input);
        let id = graph.add_operator(Operator::new("tanh", [x]), std::slice::from_ref(&single));
        graph.outputs = graph.operator(id).outputs.clone();
        assert!(in_single_precision(&graph).is_none());
    }
}
