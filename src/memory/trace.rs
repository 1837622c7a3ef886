//! A graph in one order as a trace of kernels: views are names of what they show.

use super::{
    Reuse, Sharing,
    liveness::{Kernel, Tensor, Trace, Use},
};
use crate::{
    graph::{Graph, OperatorId, Origin, TensorId},
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
            Some(Use { tensor: number, name: tensor.name.to_string(), dimensions: tensor.ty.to_string() })
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
