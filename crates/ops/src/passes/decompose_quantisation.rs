//! Conversions of quantised models as elementary operators, for engines that cannot call their kernels, which are host
//! functions on whole tensors.

use std::sync::Arc;

use edgecut_graph::{Arg, Attr, Attrs, DType, Graph, Operator, OperatorId, Origin, TensorId, TensorType};

use crate::{Call, ONNX, SEMANTICS, Typed, lookup};

/// `graph` with a decomposition for each ONNX quantisation and dequantisation.
pub fn decompose_quantisation(graph: &Graph) -> Graph {
    let mut decomposed = graph.clone();
    for id in (0..graph.operators().len() as u32).map(OperatorId) {
        if let Some(decomposition) = decomposition(graph, graph.operator(id)) {
            decomposed.operator_mut(id).decomposition = Some(Arc::new(decomposition));
        }
    }
    decomposed
}

fn decomposition(graph: &Graph, operator: &Operator) -> Option<Graph> {
    let def = lookup(&operator.name)?;
    let (args, out) = (graph.arg_types(operator), graph.result_type(operator));
    let typed = Typed { call: Call { def, attrs: &operator.attrs, args: &args, values: &[] }, out: &out };
    let quantises = match operator.name.as_str() {
        "qnn.quantize" => true,
        "qnn.dequantize" => false,
        _ => return None,
    };
    let result = typed.result().ok().filter(|_| typed.is_onnx())?;
    let mut sketch = Sketch { graph: Graph::new() };
    let operands: Vec<TensorId> = operator
        .operands()
        .map(|tensor| sketch.graph.add_tensor("", graph.tensor(tensor).ty.clone(), Origin::Input))
        .collect();
    let x = *operands.first()?;
    let shape = &sketch.graph.tensor(x).ty.shape;
    let axis = if shape.rank() == 0 { 0 } else { typed.axis("axis", -1, shape).ok()? };
    let trailing = shape.rank().saturating_sub(axis + 1);
    let parameters: Vec<TensorId> =
        operands[1..].iter().map(|parameter| sketch.along(*parameter, trailing)).collect::<Option<_>>()?;
    let scale = sketch.cast(*parameters.first()?, DType::F32)?;
    let zero = parameters.get(1).copied();
    let made = match quantises {
        false => {
            let mut wide = sketch.cast(x, DType::I32)?;
            if let Some(zero) = zero {
                let zero = sketch.cast(zero, DType::I32)?;
                wide = sketch.op("subtract", &[wide, zero], Attrs::new())?;
            }
            let real = sketch.cast(wide, DType::F32)?;
            let made = sketch.op("multiply", &[real, scale], Attrs::new())?;
            sketch.cast(made, result.dtype)?
        }
        true => {
            let real = sketch.cast(x, DType::F32)?;
            let ratio = sketch.op("divide", &[real, scale], Attrs::new())?;
            let mut whole = sketch.op("round", &[ratio], Attrs::new())?;
            if let Some(zero) = zero {
                let zero = sketch.cast(zero, DType::F32)?;
                whole = sketch.op("add", &[whole, zero], Attrs::new())?;
            }
            let (low, high) = match result.dtype {
                DType::U8 => (0.0, 255.0),
                DType::I8 => (-128.0, 127.0),
                DType::U16 => (0.0, 65535.0),
                DType::I16 => (-32768.0, 32767.0),
                _ => return None,
            };
            let limits = [("a_min".into(), Attr::Float(low)), ("a_max".into(), Attr::Float(high))];
            let within = sketch.op("clip", &[whole], limits.into_iter().collect())?;
            sketch.cast(within, result.dtype)?
        }
    };
    sketch.graph.outputs = vec![made];
    Some(sketch.graph)
}

/// A decomposition under construction.
struct Sketch {
    graph: Graph,
}

impl Sketch {
    fn op(&mut self, name: &'static str, operands: &[TensorId], mut attrs: Attrs) -> Option<TensorId> {
        let def = lookup(name)?;
        if def.has_onnx_semantics {
            attrs.set(SEMANTICS, Attr::Str(ONNX.into()));
        }
        let args: Vec<Arg> = operands.iter().map(|operand| Arg::Tensor(*operand)).collect();
        let operator = Operator::new(name, args).with_attrs(attrs);
        let types = self.graph.arg_types(&operator);
        let call = Call { def, attrs: &operator.attrs, args: &types, values: &[] };
        let result: TensorType = (def.infer)(&call).ok()?.tensors().first().map(|ty| (*ty).clone())?;
        let id = self.graph.add_operator(operator, &[result]);
        self.graph.operator(id).outputs.first().copied()
    }

    fn cast(&mut self, tensor: TensorId, dtype: DType) -> Option<TensorId> {
        if self.graph.tensor(tensor).ty.dtype == dtype {
            return Some(tensor);
        }
        let attrs = [("dtype".into(), Attr::Str(dtype.to_string().into()))].into_iter().collect();
        self.op("cast", &[tensor], attrs)
    }

    /// A vector, with `trailing` axes of size 1 after it; a scalar as it is.
    fn along(&mut self, vector: TensorId, trailing: usize) -> Option<TensorId> {
        let shape = &self.graph.tensor(vector).ty.shape;
        let is_one = shape.elements() == Some(1);
        match (shape.rank(), is_one) {
            (0, _) => Some(vector),
            (_, true) => {
                let attrs = [("newshape".into(), Attr::List(Box::new([])))].into_iter().collect();
                self.op("reshape", &[vector], attrs)
            }
            _ if trailing == 0 => Some(vector),
            (rank, false) => {
                let axes =
                    [("axis".into(), Attr::Int(rank as i64)), ("num_newaxis".into(), Attr::Int(trailing as i64))];
                self.op("expand_dims", &[vector], axes.into_iter().collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_consist_of_elementary_operators() {
        let mut graph = Graph::new();
        let x = graph.add_tensor("x", TensorType::of(DType::F32, &[2, 3, 4]), Origin::Input);
        let scale = graph.add_tensor("scale", TensorType::of(DType::F32, &[3]), Origin::Parameter);
        let zero = graph.add_tensor("zero", TensorType::of(DType::U8, &[3]), Origin::Parameter);
        let attrs = [("axis".into(), Attr::Int(1)), (SEMANTICS.into(), Attr::Str(ONNX.into()))];
        let quantise = Operator::new("qnn.quantize", [x, scale, zero]).with_attrs(attrs.into_iter().collect());
        let id = graph.add_operator(quantise, &[TensorType::of(DType::U8, &[2, 3, 4])]);
        graph.outputs = graph.operator(id).outputs.clone();
        let made = decompose_quantisation(&graph);
        let inner = made.operator(id).decomposition.clone().unwrap();
        let names: Vec<&str> = inner.operators().map(|(_, operator)| operator.name.as_str()).collect();
        assert_eq!(names, ["expand_dims", "expand_dims", "divide", "round", "cast", "add", "clip", "cast"]);
        assert_eq!(inner.tensor(inner.outputs[0]).ty, graph.tensor(graph.outputs[0]).ty);
    }
}
