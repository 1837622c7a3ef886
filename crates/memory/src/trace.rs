//! A graph in a given order as a kernel trace. Views are not kernels but further names of their operand.

use crate::{
    StorageRules,
    liveness::{Kernel, TensorUse, Trace, TracedTensor},
};
use edgecut_graph::{Alias, DType, Graph, OperatorId, Origin, TensorId, TensorType, units::Micros};

/// The trace of `graph` when its operators run in `order`.
pub fn trace(
    graph: &Graph,
    order: &[OperatorId],
    rules: &StorageRules<'_>,
    time: &dyn Fn(OperatorId) -> Micros,
) -> Trace {
    let mut trace = Trace::default();
    // The trace's tensor of each tensor of the graph.
    let mut traced: Vec<Option<usize>> = vec![None; graph.tensors().len()];
    for (id, tensor) in graph.tensors().filter(|(_, t)| !matches!(t.origin, Origin::Operator { .. })) {
        traced[id.0 as usize] = Some(trace.tensors.len());
        let (input, bytes) = (tensor.origin == Origin::Input, tensor.ty.bytes().unwrap_or_default());
        trace.tensors.push(TracedTensor { name: tensor.name.to_string(), bytes, global: !input, input, result: false });
    }
    for &id in order {
        let operator = graph.operator(id);
        if (rules.alias)(id) == Alias::View {
            let source = operator.operands().next().and_then(|t| traced[t.0 as usize]);
            operator.outputs.iter().for_each(|output| traced[output.0 as usize] = source);
            continue;
        }
        let named = |tensor: TensorId, traced: &[Option<usize>]| {
            let number = traced[tensor.0 as usize]?;
            let tensor = graph.tensor(tensor);
            Some(TensorUse { tensor: number, name: tensor.name.to_string(), dimensions: dimensions(&tensor.ty) })
        };
        let inputs: Vec<TensorUse> = operator.operands().filter_map(|t| named(t, &traced)).collect();
        for &output in &operator.outputs {
            traced[output.0 as usize] = Some(trace.tensors.len());
            let tensor = graph.tensor(output);
            let bytes = tensor.ty.bytes().unwrap_or_default();
            trace.tensors.push(TracedTensor { name: tensor.name.to_string(), bytes, ..TracedTensor::default() });
        }
        let outputs = operator.outputs.iter().filter_map(|&t| named(t, &traced)).collect();
        let arguments: Vec<&str> = inputs.iter().map(|u| u.name.as_str()).collect();
        let name = format!("{}({})", operator.name, arguments.join(", "));
        trace.kernels.push(Kernel { name, inputs, outputs, time: time(id) });
    }
    for number in graph.outputs.iter().filter_map(|output| traced[output.0 as usize]) {
        trace.tensors[number].result = true;
    }
    trace
}

/// A type in the notation of traced PyTorch graphs: `f32[1, 3]`.
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
