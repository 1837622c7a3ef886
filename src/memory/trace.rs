//! A graph in one order as a trace of kernels: views are names of what they show.

use super::{
    Reuse, Sharing,
    liveness::{Kernel, Tensor, Trace, Use},
};
use crate::{
    graph::{DType, Graph, OperatorId, Origin, TensorId, TensorType},
    units::Micros,
};

/// The trace of `graph` when its operators run in `order`.
pub fn trace(graph: &Graph, order: &[OperatorId], sharing: &Sharing<'_>, time: &dyn Fn(OperatorId) -> Micros) -> Trace {
    let mut trace = Trace::default();
    // For each tensor of the graph the tensor of the trace that it shows.
    let mut shown: Vec<Option<usize>> = vec![None; graph.tensors().len()];
    for (id, tensor) in graph.tensors().filter(|(_, t)| !matches!(t.origin, Origin::Operator { .. })) {
        shown[id.0 as usize] = Some(trace.tensors.len());
        let (input, bytes) = (tensor.origin == Origin::Input, tensor.ty.bytes().unwrap_or_default().0);
        trace.tensors.push(Tensor { name: tensor.name.to_string(), bytes, global: !input, input, result: false });
    }
    for &id in order {
        let operator = graph.operator(id);
        if (sharing.reuse)(id) == Reuse::View {
            let source = operator.operands().next().and_then(|t| shown[t.0 as usize]);
            operator.outputs.iter().for_each(|output| shown[output.0 as usize] = source);
            continue;
        }
        let named = |tensor: TensorId, shown: &[Option<usize>]| {
            let number = shown[tensor.0 as usize]?;
            let tensor = graph.tensor(tensor);
            Some(Use { tensor: number, name: tensor.name.to_string(), dimensions: dimensions(&tensor.ty) })
        };
        let inputs: Vec<Use> = operator.operands().filter_map(|t| named(t, &shown)).collect();
        for &output in &operator.outputs {
            shown[output.0 as usize] = Some(trace.tensors.len());
            let tensor = graph.tensor(output);
            let bytes = tensor.ty.bytes().unwrap_or_default().0;
            trace.tensors.push(Tensor { name: tensor.name.to_string(), bytes, ..Tensor::default() });
        }
        let outputs = operator.outputs.iter().filter_map(|&t| named(t, &shown)).collect();
        let arguments: Vec<&str> = inputs.iter().map(|u| u.name.as_str()).collect();
        let name = format!("{}({})", operator.name, arguments.join(", "));
        trace.kernels.push(Kernel { name, inputs, outputs, time_us: time(id).0 });
    }
    for number in graph.outputs.iter().filter_map(|output| shown[output.0 as usize]) {
        trace.tensors[number].result = true;
    }
    trace
}

/// A type as traced PyTorch graphs write it: `f32[1, 3]`.
fn dimensions(ty: &TensorType) -> String {
    let dims: Vec<String> = ty.shape.iter().map(ToString::to_string).collect();
    let dtype = match ty.dtype {
        DType::Bool => "b8".to_string(),
        DType::Bf16 => "bf16".to_string(),
        DType::Exotic(_) => ty.dtype.to_string(),
        dtype if dtype.is_float() => format!("f{}", 8 * dtype.size()),
        dtype if dtype.is_signed() => format!("i{}", 8 * dtype.size()),
        dtype => format!("u{}", 8 * dtype.size()),
    };
    format!("{dtype}[{}]", dims.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_pytorch_does() {
        for (dtype, dims, text) in [
            (DType::F32, &[64, 3][..], "f32[64, 3]"),
            (DType::I64, &[], "i64[]"),
            (DType::Bool, &[2], "b8[2]"),
            (DType::U8, &[2], "u8[2]"),
        ] {
            assert_eq!(dimensions(&TensorType::of(dtype, dims)), text);
        }
    }
}
